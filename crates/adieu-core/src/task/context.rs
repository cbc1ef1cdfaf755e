//! The context of a task: the reason, its deadline, and its cancellation token.

use std::cell::Cell;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::end::TaskId;
use super::lazy_span::LazySpan;
use crate::deadline::{Deadline, LiveDeadline};
use crate::log_thread::LogProgress;
use crate::phase::Phase;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// The context of a task: the reason of the shutdown, the task's deadline, and a cancellation token.
///
/// Cheap to clone and to move into spawned tasks.
#[derive(Clone, Debug)]
pub struct TaskCx {
    // Two pointers, because there is one context for every task.
    phase: Arc<PhaseCx>,
    own: Option<Box<OwnLimits>>,
}

/// The limits of a task with a timeout of its own.
#[derive(Clone, Debug)]
struct OwnLimits {
    cut: Instant,
    token: CancellationToken,
}

/// The values that all tasks of a shutdown share.
#[derive(Debug)]
pub(crate) struct RunCx {
    pub(crate) reason: Reason,
    pub(crate) deadline: LiveDeadline,
    /// Fires when tasks that only wait should end.
    pub(crate) hurry: CancellationToken,
    pub(crate) span: LazySpan,
    /// Shows whether the subscriber is blocked: then no span is opened or entered.
    pub(crate) log: LogProgress,
}

/// The values that all tasks of a phase share.
#[derive(Debug)]
pub(crate) struct PhaseCx {
    pub(crate) run: Arc<RunCx>,
    pub(crate) name: Phase,
    pub(crate) cut: Arc<LiveDeadline>,
    pub(crate) token: CancellationToken,
    pub(crate) span: LazySpan,
    /// The id of its first task.
    pub(crate) first: TaskId,
    /// The names of its tasks; empty if no spans are needed.
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
        let own = own_cut.map(|cut| Box::new(OwnLimits { cut, token: phase.token.child_token() }));
        Self { phase, own }
    }

    pub(super) fn phase_cx(&self) -> &PhaseCx {
        &self.phase
    }

    /// Returns when the phase is cancelled, for parts that outlive this context.
    pub(crate) fn phase_cut(&self) -> Arc<LiveDeadline> {
        Arc::clone(&self.phase.cut)
    }

    /// Returns the reason of the shutdown.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.phase.run.reason
    }

    /// Returns the phase of this task.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase.name
    }

    /// Returns when this task must have ended. Later calls may return an earlier deadline, never a
    /// later one.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let phase = self.phase.cut.get();
        Deadline::at(self.own.as_ref().map_or(phase, |own| phase.min(own.cut)))
    }

    /// Returns how much time this task has left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining()
    }

    /// Returns when the whole shutdown must be over.
    #[must_use]
    pub fn shutdown_deadline(&self) -> Deadline {
        Deadline::at(self.phase.run.deadline.get())
    }

    /// Returns a token that fires at this task's timeout. The task is aborted a grace (at most 200 ms)
    /// later.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        self.own.as_ref().map_or(&self.phase.token, |own| &own.token)
    }

    /// Waits until this task's timeout has elapsed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token().cancelled().await;
    }

    /// Waits until a second SIGTERM requests that waiting ends. A task that only waits should then
    /// return. See [`Rung::EndWaiting`](crate::Rung::EndWaiting).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn hurried(&self) {
        self.phase.run.hurry.cancelled().await;
    }
}

// The shutdown whose task this thread is polling, as the address of the shared state. It is used to
// reject a task that awaits its own shutdown, which would wait for itself.
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

/// Returns the key of the shutdown whose task this thread is polling, for another thread that works
/// for the task.
pub(crate) fn inside_key() -> usize {
    INSIDE.get()
}

/// Returns whether this thread is polling a task of the shutdown `key`.
pub(crate) fn is_inside(key: usize) -> bool {
    INSIDE.get() == key
}
