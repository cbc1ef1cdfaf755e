//! The contexts of a step's hooks: deadlines and cancellation tokens.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::coordinator::Shutdown;
use crate::deadline::Deadline;
use crate::reason::Reason;
use crate::task::TaskCx;
use crate::time::Duration;

/// The context of a start: its deadline, its cancellation token, and the shutdown.
///
/// Cheap to clone and to move into spawned tasks.
#[derive(Clone, Debug)]
pub struct StartCx {
    pub(super) step: Arc<str>,
    pub(super) shutdown: Shutdown,
    pub(super) deadline: Deadline,
    pub(super) token: CancellationToken,
}

/// The context of a stop: its deadline, its cancellation token, and the reason.
///
/// Cheap to clone and to move into spawned tasks.
#[derive(Clone, Debug)]
pub struct StopCx {
    pub(super) step: Arc<str>,
    pub(super) reason: Option<Reason>,
    pub(super) deadline: Deadline,
    pub(super) token: CancellationToken,
    /// The task of the shutdown that stops the step. Its time may be shortened. `None` in a rollback.
    pub(super) task: Option<TaskCx>,
}

// === impl StartCx ===

impl StartCx {
    /// Returns the id of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Returns the shutdown that will stop the step.
    ///
    /// Loops that are added through this handle belong to the start-up: they end before the first step
    /// is stopped, even if start-up fails.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Returns when the step must have started.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Returns how much time is left to start.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining()
    }

    /// Returns a token that fires when the start must end: its timeout has elapsed, another step has
    /// failed, or the shutdown has begun. The start is aborted a grace (200 ms) later.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until the start must end.
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
    /// Returns the id of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Returns the reason of the shutdown; `None` in a rollback of a start-up that has failed.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// Returns when the step must have stopped. Later calls may return an earlier deadline, never a
    /// later one.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.task.as_ref().map_or(self.deadline, |task| self.deadline.min(task.deadline()))
    }

    /// Returns how much time is left to stop.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining()
    }

    /// Returns a token that fires when the timeout has elapsed. The stop is aborted a grace (200 ms)
    /// later.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until the timeout has elapsed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}
