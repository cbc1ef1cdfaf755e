//! Declares phases and tasks, and checks at each change whether the worst case still fits.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::shared::Shared;
use crate::budget::BudgetCheck;
use crate::config::AT_ONCE;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::{LONGEST, PhaseId, PlanError};
use crate::registry::Entry;
use crate::shield::drop_each_shielded;
use crate::task::AddTaskError;

/// Why a phase was not added or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddPhaseError {
    /// The phase does not fit into the plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// In strict mode: with this change the shutdown could take longer than the platform allows.
    #[error("failed to change phase {phase}: {check}")]
    OverBudget {
        /// The phase that was to be added or changed.
        phase: Phase,
        /// The figures, and what to change.
        check: Box<BudgetCheck>,
    },
    /// The shutdown has begun, so its plan can no longer grow.
    #[error("failed to change phase {phase}: the shutdown has begun")]
    TooLate {
        /// The phase that was to be added or changed.
        phase: Phase,
    },
}

/// A task that was added, and the figures if the worst case is now too long.
struct Added {
    phase: PhaseId,
    seq: u64,
    over: Option<BudgetCheck>,
    /// Whether the shutdown has begun, and may take longer because of this task.
    grows_running: bool,
}

/// A task that was not added. It is dropped without the lock.
struct Refused {
    entry: Option<Entry>,
    why: Refusal,
}

/// Why a task was not added.
enum Refusal {
    EmptyName,
    UnknownPhase(PlanError),
    ZeroTimeout,
    TimeoutTooLong,
    TooLate,
    OverBudget(Box<BudgetCheck>),
}

// === impl Shared ===

impl Shared {
    pub(super) fn add_phase(self: &Arc<Self>, spec: PhaseSpec) -> Result<(), AddPhaseError> {
        let name = spec.name.clone();
        self.change_plan(name, |core| {
            if core.run.is_some() {
                return Err(AddPhaseError::TooLate { phase: spec.name });
            }
            Ok(core.declared.change_plan(|plan| plan.add(spec))?)
        })
    }

    pub(super) fn set_phase_timeout(
        self: &Arc<Self>,
        phase: &str,
        timeout: Duration,
    ) -> Result<(), AddPhaseError> {
        self.change_plan(Phase::new(phase), |core| {
            let id = core.declared.phase_id(phase)?;
            if core.is_too_late(id) {
                return Err(AddPhaseError::TooLate { phase: Phase::new(phase) });
            }
            Ok(core.declared.change_plan(|plan| plan.set_timeout(phase, timeout))?)
        })
    }

    /// Changes the plan. In strict mode, reverts a change with which the worst case is too long.
    fn change_plan(
        self: &Arc<Self>,
        phase: Phase,
        change: impl FnOnce(&mut Core) -> Result<(), AddPhaseError>,
    ) -> Result<(), AddPhaseError> {
        match self.try_change_plan(phase, change) {
            Ok((over, is_running)) => {
                self.warn_of(over);
                if is_running {
                    self.engine.request(|requests| requests.grown += 1);
                }
                Ok(())
            }
            Err(error) => {
                if matches!(error, AddPhaseError::TooLate { .. }) {
                    self.note_refusal(&error);
                }
                Err(error)
            }
        }
    }

    /// Returns the figures if the worst case is now too long, and whether the shutdown has begun.
    fn try_change_plan(
        &self,
        phase: Phase,
        change: impl FnOnce(&mut Core) -> Result<(), AddPhaseError>,
    ) -> Result<(Option<BudgetCheck>, bool), AddPhaseError> {
        let mut core = self.core.lock();
        let before = self.config().strict.then(|| core.declared.plan.clone());
        change(&mut core)?;
        let over = core.over_budget();
        if let (Some(before), Some(check)) = (before, &over) {
            core.declared.change_plan(|plan| -> Result<(), AddPhaseError> {
                *plan = before;
                Ok(())
            })?;
            return Err(AddPhaseError::OverBudget { phase, check: Box::new(check.clone()) });
        }
        Ok((over, core.run.is_some()))
    }

    pub(super) fn add_task(
        self: &Arc<Self>,
        phase: &str,
        entry: Entry,
    ) -> Result<(PhaseId, u64), AddTaskError> {
        let task = Arc::clone(&entry.name);
        match self.try_add_task(phase, entry) {
            Ok(Added { phase, seq, over, grows_running }) => {
                self.warn_of(over);
                if grows_running {
                    // The phases before this one have less time than was planned.
                    self.engine.request(|requests| requests.grown += 1);
                }
                Ok((phase, seq))
            }
            Err(refused) => {
                let Refused { entry, why } = *refused;
                drop(entry); // Its destructor is code of the application: not under the lock.
                let phase = Phase::new(phase);
                let is_late = matches!(why, Refusal::TooLate);
                if is_late {
                    self.refuse_task(&phase, &task);
                }
                let error = why.into_error(task, phase);
                if is_late {
                    self.note_refusal(&error);
                }
                Err(error)
            }
        }
    }

    /// Adds a task, or returns it.
    fn try_add_task(&self, phase: &str, entry: Entry) -> Result<Added, Box<Refused>> {
        if entry.name.trim().is_empty() {
            return Refused::because(Some(entry), Refusal::EmptyName);
        }
        match entry.timeout {
            Some(Duration::ZERO) => return Refused::because(Some(entry), Refusal::ZeroTimeout),
            Some(timeout) if timeout > LONGEST => {
                return Refused::because(Some(entry), Refusal::TimeoutTooLong);
            }
            Some(_) | None => {}
        }
        let mut core = self.core.lock();
        let id = match core.declared.phase_id(phase) {
            Ok(id) => id,
            Err(problem) => return Refused::because(Some(entry), Refusal::UnknownPhase(problem)),
        };
        if core.is_too_late(id) {
            return Refused::because(Some(entry), Refusal::TooLate);
        }
        let (seq, grows) = core.declared.add_task(id, entry);
        // Most tasks do not change the worst case, and need no check.
        let over = if grows { core.over_budget() } else { None };
        match over {
            Some(check) if self.config().strict => {
                let entry = core.declared.registry.cancel(id, seq);
                Refused::because(entry, Refusal::OverBudget(Box::new(check)))
            }
            over => Ok(Added { phase: id, seq, over, grows_running: grows && core.run.is_some() }),
        }
    }

    /// Cancels a task if it is pending. Returns true if it is cancelled, now or before.
    pub(super) fn cancel(&self, phase: PhaseId, seq: u64) -> bool {
        let mut core = self.core.lock();
        let entry = core.declared.registry.cancel(phase, seq);
        let is_cancelled = core.declared.registry.is_cancelled(phase, seq);
        drop(core);
        drop(entry); // Not under the lock.
        is_cancelled
    }

    /// Cancels every pending task of this name, and returns how many there were.
    pub(super) fn cancel_named(&self, phase: &str, name: &str) -> Result<usize, PlanError> {
        let mut core = self.core.lock();
        let id = core.declared.phase_id(phase)?;
        let entries = core.declared.registry.cancel_named(id, name);
        drop(core);
        let count = entries.len();
        drop_each_shielded(entries); // Not under the lock.
        Ok(count)
    }

    /// From now on, admitted work gets no time to drain, unless a timeout is set for that.
    pub(crate) fn drain_at_once(&self) {
        self.drains.lock().at_once = true;
        let mut core = self.core.lock();
        let drain = Phase::SERVICE_REQUESTS_DONE;
        if let Ok(PhaseId(at)) = core.declared.phase_id(drain.as_str())
            && core.declared.plan.is_open_ended(at)
        {
            // The phase exists and the timeout is valid, so this cannot fail.
            let _ = core.declared.change_plan(|plan| plan.set_timeout(drain, AT_ONCE));
        }
    }
}

// === impl Refused ===

impl Refused {
    fn because(entry: Option<Entry>, why: Refusal) -> Result<Added, Box<Self>> {
        Err(Box::new(Self { entry, why }))
    }
}

// === impl Refusal ===

impl Refusal {
    fn into_error(self, task: Arc<str>, phase: Phase) -> AddTaskError {
        match self {
            Self::EmptyName => AddTaskError::EmptyName { phase },
            Self::UnknownPhase(problem) => AddTaskError::UnknownPhase { task, problem },
            Self::ZeroTimeout => AddTaskError::ZeroTimeout { task, phase },
            Self::TimeoutTooLong => AddTaskError::TimeoutTooLong { task, phase },
            Self::TooLate => AddTaskError::TooLate { task, phase },
            Self::OverBudget(check) => AddTaskError::OverBudget { task, phase, check },
        }
    }
}
