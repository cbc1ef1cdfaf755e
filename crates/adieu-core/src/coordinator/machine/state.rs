//! The states of phases and tasks.

use std::ops::Range;
use std::sync::Arc;

use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::plan::{PhaseId, Rank};
use crate::task::TaskId;
use crate::time::{Duration, Instant};

/// How long a phase may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseTime {
    pub(crate) timeout: Duration,
    /// For an open-ended phase, whose `timeout` is only the minimum: the worst case of all later phases.
    pub(crate) rest: Option<Duration>,
}

/// A task as the machine sees it.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) name: Arc<str>,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct PhaseRun {
    pub(crate) name: Phase,
    pub(super) recover: bool,
    pub(super) enabled: bool,
    pub(super) rank: Rank,
    pub(super) waits_for: usize,
    pub(super) dependents: Vec<PhaseId>,
    pub(super) time: PhaseTime,
    pub(crate) state: PhaseState,
    pub(crate) tasks: Range<usize>,
    pub(super) running: usize,
    pub(super) pressure: Pressure,
    pub(super) due: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) enum PhaseState {
    /// Waiting for the phases that it depends on.
    Waiting,
    /// The driver takes its tasks.
    Opening,
    Running {
        since: Instant,
        cut: Instant,
    },
    Over {
        outcome: Outcome,
        /// When it ran; `None` if it was skipped.
        ran: Option<(Instant, Instant)>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct TaskRun {
    pub(crate) name: Arc<str>,
    pub(crate) phase: PhaseId,
    /// For a task with less time than its phase.
    pub(super) own: Option<Box<OwnTime>>,
    pub(crate) state: TaskState,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnTime {
    /// When its time is up.
    pub(super) cut: Instant,
    /// When it is next escalated, unless that is together with its phase.
    pub(super) due: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) enum TaskState {
    Running,
    // Running => Cancelling: its token has fired.
    Cancelling(Cause),
    // Cancelling => Aborting: it did not end within its grace.
    Aborting(Cause),
    Over { outcome: Outcome, took: Duration },
}

/// Why a task is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Time,
    HardStop,
}

/// The escalation that the tasks of a phase have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    None,
    Cancelled,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Phase(PhaseId),
    Task(TaskId),
}

// === impl PhaseRun ===

impl PhaseRun {
    /// Returns how long the phase may take. For an open-ended phase that runs, this is its current
    /// window.
    pub(crate) fn timeout(&self) -> Duration {
        match self.state {
            PhaseState::Running { since, cut } if self.time.rest.is_some() => {
                cut.saturating_duration_since(since)
            }
            PhaseState::Waiting
            | PhaseState::Opening
            | PhaseState::Running { .. }
            | PhaseState::Over { .. } => self.time.timeout,
        }
    }
}

// === impl TaskRun ===

impl TaskRun {
    /// From now on, the task is escalated together with its phase.
    pub(super) fn follow_phase(&mut self) {
        if let Some(own) = &mut self.own {
            own.due = None;
        }
    }
}
