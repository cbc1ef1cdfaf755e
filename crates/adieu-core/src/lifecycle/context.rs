//! What the hooks of a step are given: until when, and when to let go.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::coordinator::Shutdown;
use crate::deadline::Deadline;
use crate::reason::Reason;
use crate::task::TaskCx;
use crate::time::Duration;

/// What the start of a step is given.
///
/// Cheap to clone and to move into what the start spawns.
#[derive(Clone, Debug)]
pub struct StartCx {
    pub(super) step: Arc<str>,
    pub(super) shutdown: Shutdown,
    pub(super) deadline: Deadline,
    pub(super) token: CancellationToken,
}

/// What the stop of a step is given.
///
/// Cheap to clone and to move into what the stop spawns.
#[derive(Clone, Debug)]
pub struct StopCx {
    pub(super) step: Arc<str>,
    pub(super) reason: Option<Reason>,
    pub(super) deadline: Deadline,
    pub(super) token: CancellationToken,
    /// The task of the shutdown in which it is stopped, whose time may be cut shorter.
    pub(super) task: Option<TaskCx>,
}

// === impl StartCx ===

impl StartCx {
    /// The step's id.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The shutdown that will stop what is started.
    ///
    /// Loops that are added through it belong to this start-up: they end before the first step is
    /// stopped, also when start-up fails.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// When the step must have started.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// How much time is left to start.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining()
    }

    /// Fires when the start is to end: its time is up, another step has failed, or the shutdown has
    /// begun. Soon after it, the start is aborted.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until the start is to end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

// === impl StopCx ===

impl StopCx {
    /// The step's id.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Why the shutdown runs; `None` if it does not, because start-up has failed.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// When the step must have stopped. May be sooner when asked again, never later.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.task.as_ref().map_or(self.deadline, |task| self.deadline.min(task.deadline()))
    }

    /// How much time is left to stop.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining()
    }

    /// Fires when the time is up. Soon after it, the stop is aborted.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until the time is up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}
