//! Which phases count, and how long each takes at most.
//!
//! Only a running process knows which phases have tasks. Without one, those of the usual service
//! are counted, with the times that the library's own tasks take; and every phase that the
//! configuration gives a time or adds.

use std::time::Duration;

use adieu::{BudgetCheck, Config, KillAfter, Phase, Plan, PlannedPhase};

/// The time for closing and cutting in a phase without a configured timeout: the library's tasks
/// in it have this limit.
const CLOSING: Duration = Duration::from_secs(2);

/// A configuration, the plan that it makes, and what of the plan counts.
#[derive(Clone)]
pub(crate) struct Needs {
    pub(crate) config: Config,
    pub(crate) plan: Plan,
    counted: Counted,
}

/// The phases that are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those of a service that serves requests and closes its stores, and those that the
    /// configuration names.
    Usual,
    All,
    These(Vec<String>),
}

// === impl Needs ===

impl Needs {
    /// Fails with the name of a phase that the plan does not have.
    pub(crate) fn new(config: Config, plan: Plan, counted: Counted) -> Result<Self, String> {
        if let Counted::These(names) = &counted
            && let Some(unknown) = names.iter().find(|name| plan.phase(name).is_none())
        {
            let known: Vec<_> = plan.order().map(|phase| phase.name().to_string()).collect();
            return Err(format!("--phases: no phase {unknown}; there are {}", known.join(", ")));
        }
        Ok(Self { config, plan, counted })
    }

    /// The same phases under another configuration; as it was if that makes no plan.
    pub(crate) fn with(&self, config: Config) -> Self {
        match config.plan() {
            Ok(plan) => Self { config, plan, counted: self.counted.clone() },
            Err(_) => self.clone(),
        }
    }

    /// How long a phase takes at most; `None` if it does not count.
    pub(crate) fn takes(&self, phase: &PlannedPhase) -> Option<Duration> {
        let name = phase.name();
        let timeout = match self.config.times().kill_after {
            KillAfter::Never => phase.timeout_without_deadline(),
            KillAfter::After(_) | KillAfter::Detect | _ => phase.timeout(),
        };
        match &self.counted {
            _ if !phase.is_enabled() => None,
            Counted::All => Some(timeout),
            Counted::These(names) => names.iter().any(|n| n == name.as_str()).then_some(timeout),
            Counted::Usual if self.config.sets_timeout_of(name) => Some(timeout),
            Counted::Usual if !Phase::BUILT_IN.contains(name) => Some(timeout),
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

    /// What counts against a platform that kills after this time.
    pub(crate) fn check(&self, kill_after: Option<Duration>) -> BudgetCheck {
        let reserve = self.config.times().reserve;
        BudgetCheck::of(&self.plan, |phase| self.takes(phase), reserve, kill_after)
    }

    /// How long the lame duck can be, if the process assumes this grace period.
    pub(crate) fn lame_duck(&self, allowed: Option<Duration>) -> Duration {
        let first = self.plan.phase(Phase::BEFORE_SERVICE_UNBIND);
        match first.and_then(|phase| self.takes(phase)) {
            Some(_) => self.config.lame_duck_within(&self.plan, allowed),
            None => Duration::ZERO,
        }
    }

    /// The phases that count, and those that do not, by name.
    pub(crate) fn counted(&self) -> (Vec<String>, Vec<String>) {
        let (yes, no): (Vec<_>, Vec<_>) =
            self.plan.order().partition(|phase| self.takes(phase).is_some());
        let names = |phases: Vec<&PlannedPhase>| {
            phases.into_iter().map(|phase| phase.name().to_string()).collect()
        };
        (names(yes), names(no))
    }
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
