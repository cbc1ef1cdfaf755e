//! The declarations and the run. They share one lock, because a phase must refuse new tasks from the
//! same instant in which its tasks are taken.

use tokio::runtime::Handle;

use super::declared::{Allowance, Declared};
use super::run::Run;
use crate::budget::BudgetCheck;
use crate::config::Config;
use crate::plan::{PhaseId, PlanBuilder};

pub(super) struct Core {
    pub(super) declared: Declared,
    pub(super) allowance: Allowance,
    /// The runtime of the application, on which its tasks run.
    pub(super) home: Option<Handle>,
    /// `None` until the shutdown begins.
    pub(super) run: Option<Run>,
}

// === impl Core ===

impl Core {
    pub(super) fn new(config: &Config, plan: PlanBuilder) -> Self {
        Self {
            declared: Declared::new(plan),
            allowance: Allowance::new(config),
            home: Handle::try_current().ok(),
            run: None,
        }
    }

    /// Compares the worst case with the time that the platform allows.
    pub(super) fn check_budget(&mut self) -> BudgetCheck {
        self.declared.check_within(self.allowance.budget)
    }

    /// Returns the figures if the worst case is too long; `None` if it fits, if no limit is known, or if
    /// the shutdown has begun.
    pub(super) fn over_budget(&mut self) -> Option<BudgetCheck> {
        if self.allowance.budget.kill_after.is_none() || self.run.is_some() {
            return None;
        }
        Some(self.check_budget()).filter(|check| !check.fits())
    }

    /// Returns whether no task can be added to the phase: it has started, or is over.
    pub(super) fn is_too_late(&self, phase: PhaseId) -> bool {
        let is_over = |run: &Run| run.machine.is_over(phase);
        self.declared.registry.has_started(phase) || self.run.as_ref().is_some_and(is_over)
    }

    /// Takes the runtime of the calling thread as the runtime of the application, if none is known.
    pub(super) fn adopt_runtime(&mut self) -> Option<Handle> {
        self.home = self.home.take().or_else(|| Handle::try_current().ok());
        self.home.clone()
    }
}
