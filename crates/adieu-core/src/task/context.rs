//! What a task is given: why, until when, and when to let go.

use std::cell::Cell;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::end::TaskId;
use super::span::LazySpan;
use crate::deadline::{Deadline, LiveDeadline};
use crate::phase::Phase;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// What a task is given when it starts.
///
/// Cheap to clone and to move into what the task spawns.
#[derive(Clone, Debug)]
pub struct TaskCx {
    // One pointer, and one more for the few that need it: there is one of these for every task.
    phase: Arc<PhaseCx>,
    own: Option<Box<Own>>,
}

/// For a task with a timeout of its own.
#[derive(Clone, Debug)]
struct Own {
    cut: Instant,
    token: CancellationToken,
}

/// What all tasks of a shutdown share.
#[derive(Debug)]
pub(crate) struct RunCx {
    pub(crate) reason: Reason,
    pub(crate) deadline: LiveDeadline,
    /// Fires when mere waits are to end.
    pub(crate) hurry: CancellationToken,
    pub(crate) span: LazySpan,
}

/// What all tasks of a phase share.
#[derive(Debug)]
pub(crate) struct PhaseCx {
    pub(crate) run: Arc<RunCx>,
    pub(crate) name: Phase,
    pub(crate) cut: LiveDeadline,
    pub(crate) token: CancellationToken,
    pub(crate) span: LazySpan,
    /// The first of its tasks, and the names of all; empty where no spans are wanted.
    pub(crate) first: TaskId,
    pub(crate) names: Box<[Arc<str>]>,
}

// === impl PhaseCx ===

impl PhaseCx {
    pub(super) fn name_of(&self, task: TaskId) -> Option<&Arc<str>> {
        self.names.get(task.0.checked_sub(self.first.0)?)
    }
}

// === impl TaskCx ===

impl TaskCx {
    pub(crate) fn new(phase: Arc<PhaseCx>, own_cut: Option<Instant>) -> Self {
        let own = own_cut.map(|cut| Box::new(Own { cut, token: phase.token.child_token() }));
        Self { phase, own }
    }

    pub(super) fn phase_cx(&self) -> &PhaseCx {
        &self.phase
    }

    /// Why we stop.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.phase.run.reason
    }

    /// The phase that this task belongs to.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase.name
    }

    /// When this task must be over. May be sooner when asked again, never later.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let phase = self.phase.cut.get();
        Deadline::at(self.own.as_ref().map_or(phase, |own| phase.min(own.cut)))
    }

    /// How much time this task has left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining()
    }

    /// When the whole shutdown must be over.
    #[must_use]
    pub fn shutdown_deadline(&self) -> Deadline {
        Deadline::at(self.phase.run.deadline.get())
    }

    /// Fires when this task's time is up. Soon after it, the task is aborted.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        self.own.as_ref().map_or(&self.phase.token, |own| &own.token)
    }

    /// Waits until this task's time is up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token().cancelled().await;
    }

    /// Waits until somebody is in a hurry: a task that merely waits should then end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn hurried(&self) {
        self.phase.run.hurry.cancelled().await;
    }
}

// Which shutdown's task is being polled on this thread, as the address of its shared state.
// Awaiting a shutdown inside one of its own tasks would wait for itself.
thread_local! {
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f` as part of a task of the shutdown `key`.
pub(crate) fn inside<T>(key: usize, f: impl FnOnce() -> T) -> T {
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _restore = Restore(INSIDE.replace(key));
    f()
}

/// The shutdown that this thread is inside a task of, for another thread that works for the task.
pub(crate) fn inside_key() -> usize {
    INSIDE.get()
}

/// Whether this thread is inside a task of the shutdown `key`.
pub(crate) fn is_inside(key: usize) -> bool {
    INSIDE.get() == key
}
