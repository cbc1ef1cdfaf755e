//! Determines the phases that count, and the longest time of each.
//!
//! Only a running process can determine which phases have tasks. So by default the phases of a
//! usual service count, with the times that the library's own tasks take. In addition, every phase
//! counts that the configuration adds, or for which it sets a timeout. If the configuration has a
//! cluster, the phases count in which a node leaves it.

use std::sync::Arc;
use std::time::Duration;

use adieu::{BudgetCheck, Config, KillAfter, Phase, Plan, PlannedPhase};
use adieu_core::adapter::has_table;

/// The time limit of the library's own tasks that close listeners and cut off work. Their phases
/// take this long if no timeout is configured.
const CLOSING: Duration = Duration::from_secs(2);

/// A configuration, its plan, and which phases of the plan count. A clone shares all three.
#[derive(Clone)]
pub(crate) struct Needs {
    pub(crate) config: Arc<Config>,
    pub(crate) plan: Arc<Plan>,
    counted: Arc<Counted>,
}

/// The phases that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The phases of a service that serves requests and closes its stores, and the phases that the
    /// configuration adds or for which it sets a timeout.
    Usual,
    All,
    These(Vec<String>),
}

// === impl Needs ===

impl Needs {
    /// Combines a configuration and its plan. If `counted` names an unknown phase, the error
    /// contains its name.
    pub(crate) fn new(config: Config, plan: Plan, counted: Counted) -> Result<Self, String> {
        if let Counted::These(names) = &counted
            && let Some(unknown) = names.iter().find(|name| plan.phase(name).is_none())
        {
            let known: Vec<_> = plan.order().map(|phase| phase.name().to_string()).collect();
            return Err(format!("--phases: no phase {unknown}; there are {}", known.join(", ")));
        }
        Ok(Self { config: Arc::new(config), plan: Arc::new(plan), counted: Arc::new(counted) })
    }

    /// Returns the same needs under another configuration, or unchanged if that configuration has
    /// no valid plan.
    pub(crate) fn with(&self, config: Config) -> Self {
        match config.plan() {
            Ok(plan) => {
                let (config, plan) = (Arc::new(config), Arc::new(plan));
                Self { config, plan, counted: self.counted.clone() }
            }
            Err(_) => self.clone(),
        }
    }

    /// Returns the same needs of a process that assumes another grace period. The plan is the same.
    pub(crate) fn with_kill_after(&self, kill_after: KillAfter) -> Self {
        let config = Arc::new(Config::clone(&self.config).kill_after(kill_after));
        Self { config, ..self.clone() }
    }

    /// Returns how long a phase takes at most, or `None` if it does not count.
    pub(crate) fn takes(&self, phase: &PlannedPhase) -> Option<Duration> {
        let name = phase.name();
        let timeout = match self.config.times().kill_after {
            KillAfter::Never => phase.timeout_without_deadline(),
            KillAfter::After(_) | KillAfter::Detect | _ => phase.timeout(),
        };
        match &*self.counted {
            _ if !phase.is_enabled() => None,
            Counted::All => Some(timeout),
            Counted::These(names) => names.iter().any(|n| n == name.as_str()).then_some(timeout),
            Counted::Usual if self.config.sets_timeout_of(name) => Some(timeout),
            Counted::Usual if !Phase::BUILT_IN.contains(name) => Some(timeout),
            Counted::Usual if has_table(&self.config, "cluster") && is_of_cluster(name) => {
                Some(timeout)
            }
            Counted::Usual if [Phase::SERVICE_UNBIND, Phase::SERVICE_STOP].contains(name) => {
                Some(timeout.min(CLOSING))
            }
            Counted::Usual => {
                [Phase::BEFORE_SERVICE_UNBIND, Phase::SERVICE_REQUESTS_DONE, Phase::CLOSE_RESOURCES]
                    .contains(name)
                    .then_some(timeout)
            }
        }
    }

    /// Compares the needs with a platform that kills the process after this time.
    pub(crate) fn check(&self, kill_after: Option<Duration>) -> BudgetCheck {
        let reserve = self.config.times().reserve;
        BudgetCheck::of(&self.plan, |phase| self.takes(phase), reserve, kill_after)
    }

    /// Returns how long the lame duck can be, if the process assumes this grace period.
    pub(crate) fn lame_duck(&self, allowed: Option<Duration>) -> Duration {
        let first = self.plan.phase(Phase::BEFORE_SERVICE_UNBIND);
        match first.and_then(|phase| self.takes(phase)) {
            Some(_) => self.config.lame_duck_within(&self.plan, allowed),
            None => Duration::ZERO,
        }
    }

    /// Returns the names of the phases that count, and of those that do not.
    pub(crate) fn counted(&self) -> (Vec<String>, Vec<String>) {
        let (yes, no): (Vec<_>, Vec<_>) =
            self.plan.order().partition(|phase| self.takes(phase).is_some());
        let names = |phases: Vec<&PlannedPhase>| {
            phases.into_iter().map(|phase| phase.name().to_string()).collect()
        };
        (names(yes), names(no))
    }
}

fn is_of_cluster(phase: &Phase) -> bool {
    adieu::cluster::TASKS.iter().any(|(with_task, _)| with_task == phase)
}

// === impl Counted ===

impl std::str::FromStr for Counted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<_> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        Ok(match names.as_slice() {
            [] => return Err("name at least one phase, or write usual or all".into()),
            ["usual"] => Self::Usual,
            ["all"] => Self::All,
            names => Self::These(names.iter().map(ToString::to_string).collect()),
        })
    }
}
