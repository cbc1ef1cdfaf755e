//! The context of a loop: whether to take work, and when to stop.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use crate::coordinator::Shared;
use crate::gate::{Draining, Gate, Pass, State};
use crate::journal::Line;
use crate::time::Duration;

/// The context of a loop: whether to take work, and when to stop.
///
/// Cheap to clone and to move into spawned tasks.
///
/// ```
/// # use adieu_core::LoopCx;
/// # struct Queue;
/// # impl Queue { async fn next(&mut self) -> u32 { 7 } async fn requeue(&mut self, _: u32) {} }
/// # async fn work(_: u32) {}
/// async fn worker(cx: LoopCx, mut queue: Queue) {
///     while cx.may_take().await {
///         // Only the wait for a job is dropped when the loop must take no more, never the work.
///         let Some(job) = cx.take(queue.next()).await else { continue };
///         match cx.enter() {
///             Ok(pass) => pass.scope(work(job)).await,
///             Err(_) => queue.requeue(job).await,
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LoopCx {
    pub(super) gate: Gate,
    /// Fires when the remaining time is only enough to clean up.
    pub(super) last_call: CancellationToken,
    pub(super) shared: Weak<Shared>,
}

// === impl LoopCx ===

impl LoopCx {
    /// Returns the name of the loop.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.gate.name()
    }

    /// Returns the gate of the loop. Cordoning it pauses this loop only.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Admits one unit of work. The shutdown waits for it.
    ///
    /// # Errors
    ///
    /// If the loop must take no more work. [`Draining::verdict`] shows what to do with a job that was
    /// already taken.
    pub fn enter(&self) -> Result<Pass, Draining> {
        self.gate.enter()
    }

    /// Returns whether the loop may take work now.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        self.gate.state() == State::Open
    }

    /// Waits while the loop is paused. Returns true if the loop may take work, and false if it must
    /// take no more, for good.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn may_take(&self) -> bool {
        self.gate.until(|gate| gate.state() != State::Cordoned).await;
        !self.gate.is_closed()
    }

    /// Awaits `taking`, and drops it when the loop is paused or must take no more. For waiting for
    /// work, not for doing it.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `taking`, which must not lose work when it is dropped.
    pub async fn take<T>(&self, taking: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased; // Work that was taken is kept even if the gate closes at the same time.
            taken = taking => Some(taken),
            () = self.gate.until(|gate| gate.state() != State::Open) => None,
        }
    }

    /// Waits until the loop must take no more work, for good. Work that has begun should be finished.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn takes_no_more(&self) {
        self.no_more_token().cancelled().await;
    }

    /// Returns a token that fires when the loop must take no more work, for good.
    #[must_use]
    pub fn no_more_token(&self) -> CancellationToken {
        self.gate.closed_token()
    }

    /// Waits until the loop and its work must stop, finished or not.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stops_now(&self) {
        self.stop_token().cancelled().await;
    }

    /// Returns a token that fires when the loop and its work must stop.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.gate.cut_token()
    }

    /// Logs that the loop or a part of it has failed.
    pub(super) fn log_failure(&self, part: &'static str, error: &str, retry_in: Option<Duration>) {
        if let Some(shared) = self.shared.upgrade() {
            let line = Line::LoopFailed { name: self.name(), part, error: error.into(), retry_in };
            shared.journal().note(line);
        }
    }
}
