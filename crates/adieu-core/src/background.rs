//! Ends background loops and joins them, for the shutdown that owns them or for a lifecycle that must
//! end them earlier. What a loop does is not known here.

use std::sync::{Arc, Mutex, Weak};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::budget::GRACE;
use crate::gate::Gate;
use crate::sync::lock;
use crate::task::TaskCx;
use crate::time::{Duration, now};

/// How much of a loop's time is kept for handing back interrupted work and for leaving.
const TO_CLEAR_UP: Duration = Duration::from_secs(1);

/// Ends a loop, and knows whether it has ended. Dropping it ends the loop at once, so no loop
/// outlives its shutdown.
pub(crate) struct LoopHandle {
    pub(crate) gate: Gate,
    pub(crate) last_call: CancellationToken,
    pub(crate) over: CancellationToken,
    /// Why it failed, until that has been reported.
    pub(crate) error: Arc<Mutex<Option<Arc<str>>>>,
    pub(crate) task: AbortHandle,
}

/// The loops that were added through one handle. It does not own them: the shutdown does.
#[derive(Default)]
pub(crate) struct OwnedLoops(Mutex<Vec<Weak<LoopHandle>>>);

// === impl LoopHandle ===

impl LoopHandle {
    /// Tells the loop to stop now and waits until it has; with the last of its time it is made to.
    pub(crate) async fn join(&self, cx: TaskCx) -> Result<(), String> {
        self.gate.close();
        self.gate.cut();
        let left = cx.remaining();
        tokio::select! {
            () = self.over.cancelled() => return self.ended(),
            () = tokio::time::sleep(left - TO_CLEAR_UP.min(left / 2)) => self.last_call.cancel(),
            () = cx.cancelled() => {
                // There is less time than was thought. Who closes down sees to what is left.
                self.last_call.cancel();
                self.over.cancelled().await;
                return self.ended();
            }
        }
        tokio::select! {
            () = self.over.cancelled() => return self.ended(),
            () = cx.cancelled() => self.task.abort(),
        }
        self.over.cancelled().await;
        // What it had spawned under its passes.
        self.gate.drained(cx.shutdown_deadline()).await;
        Err("it did not end and was aborted".into())
    }

    /// Ends the loop as [`LoopHandle::join`] does, while there is no shutdown, within `left`.
    pub(crate) async fn end_within(&self, left: Duration) -> Result<(), String> {
        self.gate.close();
        self.gate.cut();
        let end = tokio::time::Instant::from(now()) + left;
        let clear_up = TO_CLEAR_UP.min(left / 2);
        if tokio::time::timeout_at(end - clear_up, self.over.cancelled()).await.is_err() {
            self.last_call.cancel();
            if tokio::time::timeout_at(end, self.over.cancelled()).await.is_err() {
                self.task.abort();
                return match tokio::time::timeout(GRACE, self.over.cancelled()).await {
                    Ok(()) => Err("it was aborted".into()),
                    Err(_) => Err("it was aborted, and is still running".into()),
                };
            }
        }
        self.ended()
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.gate.name()
    }

    /// What it was waiting for, in one line.
    pub(crate) fn summary(&self) -> String {
        self.gate.summary()
    }

    fn ended(&self) -> Result<(), String> {
        lock(&self.error).take().map_or(Ok(()), |error| Err(error.to_string()))
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl OwnedLoops ===

impl OwnedLoops {
    pub(crate) fn add(&self, added: &Arc<LoopHandle>) {
        let mut all = lock(&self.0);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(added));
    }

    /// The loops that have not been dropped.
    pub(crate) fn all(&self) -> Vec<Arc<LoopHandle>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}
