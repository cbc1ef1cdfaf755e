//! What a loop is given: whether to take work, and when to stop.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use crate::coordinator::Shared;
use crate::gate::{Draining, Gate, Pass, State};
use crate::journal::Line;
use crate::time::Duration;

/// What a loop is given: whether to take work, and when to stop.
///
/// Cheap to clone and to move into what the loop spawns.
///
/// ```
/// # use adieu_core::LoopCx;
/// # struct Queue;
/// # impl Queue { async fn next(&mut self) -> u32 { 7 } async fn requeue(&mut self, _: u32) {} }
/// # async fn work(_: u32) {}
/// async fn worker(cx: LoopCx, mut queue: Queue) {
///     while cx.may_take().await {
///         // The taking is dropped when no more is to be taken, never the work.
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
    /// Fires when what is left of its time is only just enough to clear up.
    pub(super) last_call: CancellationToken,
    pub(super) shared: Weak<Shared>,
}

// === impl LoopCx ===

impl LoopCx {
    /// The loop's name.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.gate.name()
    }

    /// The loop's gate. Cordoning it pauses this loop alone.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Admits one unit of work, which the shutdown then waits for.
    ///
    /// # Errors
    ///
    /// If no more is to be taken. See [`Draining::verdict`] for what was taken already.
    pub fn enter(&self) -> Result<Pass, Draining> {
        self.gate.enter()
    }

    /// Whether work may be taken right now.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        self.gate.state() == State::Open
    }

    /// Waits while the loop is paused. True when work may be taken; false when no more is to be
    /// taken, for good.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn may_take(&self) -> bool {
        self.gate.until(|gate| gate.state() != State::Cordoned).await;
        !self.gate.is_closed()
    }

    /// Awaits `taking`, but drops it when the loop is paused or no more is to be taken. For taking
    /// work, not for doing it.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `taking`, which must not lose what it has taken when it is dropped.
    pub async fn take<T>(&self, taking: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased; // What has been taken is not thrown away because doors close just now.
            taken = taking => Some(taken),
            () = self.gate.until(|gate| gate.state() != State::Open) => None,
        }
    }

    /// Waits until no more is to be taken, for good: what has been started is to be finished.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn takes_no_more(&self) {
        self.no_more_token().cancelled().await;
    }

    /// Fires when no more is to be taken, for good.
    #[must_use]
    pub fn no_more_token(&self) -> CancellationToken {
        self.gate.closed_token()
    }

    /// Waits until all is to stop now, finished or not.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stops_now(&self) {
        self.stop_token().cancelled().await;
    }

    /// Fires when all is to stop now.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.gate.cut_token()
    }

    /// Logs that the loop, or a part of it, has failed.
    pub(super) fn log_failure(&self, part: &'static str, error: &str, again_in: Option<Duration>) {
        if let Some(shared) = self.shared.upgrade() {
            let line = Line::LoopFailed { name: self.name(), part, error: error.into(), again_in };
            shared.journal().note(line);
        }
    }
}
