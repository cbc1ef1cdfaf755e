//! The phases and tasks that were declared, and the time that the platform allows for them.

use std::time::Duration;

use crate::budget::{Budget, BudgetCheck};
use crate::config::{Config, KillAfter, Source};
use crate::plan::{LONGEST, PhaseId, Plan, PlanBuilder, PlanError};
use crate::registry::{Entry, Registry};
use crate::task::TaskInfo;
use crate::time::Instant;

/// The phases, and the tasks that have not started.
pub(super) struct Declared {
    pub(super) plan: PlanBuilder,
    pub(super) registry: Registry,
    /// The plan as built, until it changes.
    built: Option<Plan>,
}

/// The time that the platform allows, and the warning if the worst case is longer.
pub(super) struct Allowance {
    pub(super) budget: Budget,
    /// The source of `kill_after`.
    pub(super) source: Source,
    /// The limit that was set by `shorten` before the shutdown began.
    pub(super) limit: Option<Duration>,
    pub(super) warning: Warning,
}

/// The warning that the worst case is too long. It is due for a while before it is logged; see
/// `over_budget.rs`.
#[derive(Default)]
pub(super) struct Warning {
    /// The worst case and the reserve, when the warning was last logged or became due.
    pub(super) needed: Duration,
    /// When the worst case last grew, if it has grown since the warning was logged.
    pub(super) due_since: Option<Instant>,
}

// === impl Declared ===

impl Declared {
    pub(super) fn new(plan: PlanBuilder) -> Self {
        let mut registry = Registry::default();
        registry.grow(plan.len());
        Self { plan, registry, built: None }
    }

    /// Returns the position of a phase.
    pub(super) fn phase_id(&self, phase: &str) -> Result<PhaseId, PlanError> {
        self.plan.position(phase).map(PhaseId)
    }

    /// Changes the plan. If `change` fails, the plan must be as before.
    pub(super) fn change_plan<E>(
        &mut self,
        change: impl FnOnce(&mut PlanBuilder) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.plan)?;
        self.registry.grow(self.plan.len());
        self.built = None;
        Ok(())
    }

    /// Returns the plan as declared so far.
    pub(super) fn built_plan(&mut self) -> Plan {
        self.built.get_or_insert_with(|| self.plan.build()).clone()
    }

    /// Compares the worst case of the declared tasks with a budget.
    pub(super) fn check_within(&mut self, budget: Budget) -> BudgetCheck {
        let plan = self.built_plan();
        budget.check(&plan, |id| self.registry.takes(id, budget.timeout_of(plan.get(id))))
    }

    /// Adds a task. Returns its number, and whether the worst case of its phase has become longer.
    pub(super) fn add_task(&mut self, phase: PhaseId, entry: Entry) -> (u64, bool) {
        let before = self.registry.takes(phase, LONGEST);
        let seq = self.registry.add(phase, entry);
        (seq, self.registry.takes(phase, LONGEST) > before)
    }

    /// Lists the tasks that have been added and neither started nor been cancelled, by phase.
    pub(super) fn pending_tasks(&self) -> Vec<TaskInfo> {
        let phases = (0..self.plan.len()).map(PhaseId);
        phases
            .flat_map(|id| self.registry.pending(id).map(move |entry| (id, entry)))
            .map(|(id, entry)| TaskInfo {
                phase: self.plan.name(id.0).clone(),
                name: entry.name.clone(),
                timeout: entry.timeout,
                blocking: entry.blocking,
                added_at: format!("{}:{}", entry.place.file(), entry.place.line()),
            })
            .collect()
    }
}

// === impl Allowance ===

impl Allowance {
    pub(super) fn new(config: &Config) -> Self {
        let kill_after = match config.kill_after {
            KillAfter::After(after) => Some(after),
            // The platform counts from its signal. Without signals there is no limit.
            KillAfter::Detect | KillAfter::Never => None,
        };
        Self {
            budget: Budget { kill_after, reserve: config.reserve },
            source: Source::configured(),
            limit: None,
            warning: Warning::default(),
        }
    }

    /// Returns the budget of a shutdown. A limit that was only detected counts from the platform's signal,
    /// so without a signal there is none.
    pub(super) fn budget_for(&self, has_signal: bool, config: &Config) -> Budget {
        let is_detected = config.kill_after == KillAfter::Detect;
        let counts = !is_detected || has_signal;
        Budget { kill_after: self.budget.kill_after.filter(|_| counts), ..self.budget }
    }

    /// Limits how long a shutdown that has not begun may take.
    pub(super) fn limit_to(&mut self, limit: Duration) {
        self.limit = Some(self.limit.map_or(limit, |known| known.min(limit)));
    }
}
