//! Declaring phases and tasks, and judging at each change whether the worst case still fits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;

use super::shared::{Core, Shared};
use crate::budget::BudgetCheck;
use crate::config::AT_ONCE;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::{LONGEST, PhaseId, Plan, PlanError};
use crate::registry::Entry;
use crate::shield::drop_each_shielded;
use crate::sync::lock;
use crate::task::{AddTaskError, TaskInfo};

/// Why a phase was not added or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddPhaseError {
    /// It does not fit into the plan.
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
    /// The shutdown has begun; its plan can no longer grow.
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
    /// Whether the shutdown has begun, and may take longer because of it.
    grows_running: bool,
}

/// A task that was not added, to be dropped outside the lock.
struct Refused {
    entry: Option<Entry>,
    why: Refusal,
}

/// Why a task was not added.
enum Refusal {
    EmptyName,
    UnknownPhase(PlanError),
    ZeroTimeout,
    EndlessTimeout,
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
            core.plan.add(spec)?;
            core.registry.grow(core.plan.len());
            Ok(())
        })
    }

    pub(super) fn set_phase_timeout(
        self: &Arc<Self>,
        phase: &str,
        timeout: Duration,
    ) -> Result<(), AddPhaseError> {
        self.change_plan(Phase::new(phase), |core| {
            let at = core.plan.position(phase)?;
            if core.is_too_late(PhaseId(at)) {
                return Err(AddPhaseError::TooLate { phase: Phase::new(phase) });
            }
            Ok(core.plan.timeout(phase, timeout)?)
        })
    }

    /// Changes the plan, and takes the change back if strictness forbids it.
    fn change_plan(
        self: &Arc<Self>,
        phase: Phase,
        change: impl FnOnce(&mut Core) -> Result<(), AddPhaseError>,
    ) -> Result<(), AddPhaseError> {
        let mut core = lock(&self.core);
        let before = self.config.strict.then(|| core.plan.clone());
        if let Err(error) = change(&mut core) {
            drop(core);
            if matches!(error, AddPhaseError::TooLate { .. }) {
                self.note_refusal(&error);
            }
            return Err(error);
        }
        core.built = None;
        let over = core.over_budget();
        if let (Some(before), Some(check)) = (before, &over) {
            core.plan = before;
            core.built = None;
            return Err(AddPhaseError::OverBudget { phase, check: Box::new(check.clone()) });
        }
        let is_running = core.run.is_some();
        drop(core);
        self.warn_of(over);
        if is_running {
            self.wish(|wishes| wishes.grown += 1);
        }
        Ok(())
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
                    // What comes before has less time than it was given.
                    self.wish(|wishes| wishes.grown += 1);
                }
                Ok((phase, seq))
            }
            Err(refused) => {
                let Refused { entry, why } = *refused;
                drop(entry); // The user's code may run in its drop: not under our lock.
                let phase = Phase::new(phase);
                let is_late = matches!(why, Refusal::TooLate);
                if is_late {
                    self.refuse_task(&phase, &task);
                }
                let error = match why {
                    Refusal::EmptyName => AddTaskError::EmptyName { phase },
                    Refusal::UnknownPhase(problem) => AddTaskError::UnknownPhase { task, problem },
                    Refusal::ZeroTimeout => AddTaskError::ZeroTimeout { task, phase },
                    Refusal::EndlessTimeout => AddTaskError::EndlessTimeout { task, phase },
                    Refusal::TooLate => AddTaskError::TooLate { task, phase },
                    Refusal::OverBudget(check) => AddTaskError::OverBudget { task, phase, check },
                };
                if is_late {
                    self.note_refusal(&error);
                }
                Err(error)
            }
        }
    }

    /// Adds a task, or gives it back; and says if the worst case is now too long.
    fn try_add_task(&self, phase: &str, entry: Entry) -> Result<Added, Box<Refused>> {
        if entry.name.trim().is_empty() {
            return Refused::because(Some(entry), Refusal::EmptyName);
        }
        match entry.timeout {
            Some(Duration::ZERO) => return Refused::because(Some(entry), Refusal::ZeroTimeout),
            Some(timeout) if timeout > LONGEST => {
                return Refused::because(Some(entry), Refusal::EndlessTimeout);
            }
            Some(_) | None => {}
        }
        let mut core = lock(&self.core);
        let id = match core.plan.position(phase) {
            Ok(at) => PhaseId(at),
            Err(problem) => return Refused::because(Some(entry), Refusal::UnknownPhase(problem)),
        };
        if core.is_too_late(id) {
            return Refused::because(Some(entry), Refusal::TooLate);
        }
        // Most tasks do not change the worst case: asking is for those that do.
        let before = core.registry.takes(id, LONGEST);
        let seq = core.registry.add(id, entry);
        let grows = core.registry.takes(id, LONGEST) > before;
        let over = if grows { core.over_budget() } else { None };
        match over {
            Some(check) if self.config.strict => {
                let entry = core.registry.cancel(id, seq);
                Refused::because(entry, Refusal::OverBudget(Box::new(check)))
            }
            over => Ok(Added { phase: id, seq, over, grows_running: grows && core.run.is_some() }),
        }
    }

    /// Takes a task back while it is pending; true if it is taken back then.
    pub(crate) fn cancel(&self, phase: PhaseId, seq: u64) -> bool {
        let mut core = lock(&self.core);
        let entry = core.registry.cancel(phase, seq);
        let is_cancelled = core.registry.is_cancelled(phase, seq);
        drop(core);
        drop(entry); // Not under the lock.
        is_cancelled
    }

    pub(crate) fn is_cancelled(&self, phase: PhaseId, seq: u64) -> bool {
        lock(&self.core).registry.is_cancelled(phase, seq)
    }

    /// Takes back every pending task of this name, and returns how many there were.
    pub(super) fn cancel_named(&self, phase: &str, name: &str) -> Result<usize, PlanError> {
        let mut core = lock(&self.core);
        let id = PhaseId(core.plan.position(phase)?);
        let entries = core.registry.cancel_named(id, name);
        drop(core);
        let count = entries.len();
        drop_each_shielded(entries); // Not under the lock.
        Ok(count)
    }

    pub(super) fn tasks(&self) -> Vec<TaskInfo> {
        let core = lock(&self.core);
        let phases = (0..core.plan.len()).map(PhaseId);
        phases
            .flat_map(|id| core.registry.pending(id).map(move |entry| (id, entry)))
            .map(|(id, entry)| TaskInfo {
                phase: core.plan.name(id.0).clone(),
                name: Arc::clone(&entry.name),
                timeout: entry.timeout,
                blocking: entry.blocking,
                added_at: format!("{}:{}", entry.place.file(), entry.place.line()),
            })
            .collect()
    }

    pub(super) fn plan(&self) -> Plan {
        lock(&self.core).built_plan()
    }

    pub(super) fn phase_id(&self, phase: &str) -> Result<PhaseId, PlanError> {
        lock(&self.core).plan.position(phase).map(PhaseId)
    }

    pub(super) fn check_budget(&self) -> BudgetCheck {
        lock(&self.core).check_budget()
    }

    /// Whether the configuration says how long the phase may take.
    pub(crate) fn has_configured_timeout(&self, phase: &Phase) -> bool {
        self.config.sets_timeout_of(phase)
    }

    /// From now on no time is taken to drain, unless somebody has said how long it may take.
    pub(crate) fn drain_at_once(&self) {
        self.drains_at_once.store(true, Ordering::Relaxed);
        let mut core = lock(&self.core);
        if let Ok(at) = core.plan.position(Phase::SERVICE_REQUESTS_DONE.as_str())
            && core.plan.is_open_ended(at)
            && core.plan.timeout(Phase::SERVICE_REQUESTS_DONE, AT_ONCE).is_ok()
        {
            core.built = None;
        }
    }

    /// The runtime that tasks run on, if one is known.
    pub(crate) fn home(&self) -> Option<Handle> {
        lock(&self.core).home.clone()
    }
}

// === impl Refused ===

impl Refused {
    fn because(entry: Option<Entry>, why: Refusal) -> Result<Added, Box<Self>> {
        Err(Box::new(Self { entry, why }))
    }
}
