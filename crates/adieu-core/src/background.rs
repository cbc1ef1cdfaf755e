//! Ends background loops and joins them: in the shutdown that owns them, or earlier when start-up
//! fails. This module is independent of the work of a loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::budget::GRACE;
use crate::gate::Gate;
use crate::sync::lock;
use crate::task::TaskCx;
use crate::time::{Duration, now};

/// The part of a loop's time that is reserved for returning interrupted work and for leaving.
const TO_CLEAR_UP: Duration = Duration::from_secs(1);

/// The handle of a loop: ends it, and reports whether it has ended. Dropping the handle aborts the
/// loop, so no loop outlives its shutdown.
pub(crate) struct LoopHandle {
    pub(crate) gate: Gate,
    pub(crate) last_call: CancellationToken,
    pub(crate) over: CancellationToken,
    /// The loop's error, until it has been reported.
    pub(crate) error: Arc<Mutex<Option<Arc<str>>>>,
    pub(crate) task: AbortHandle,
    /// Whether a task of the shutdown, or a rollback, has ended the loop or reports that it did not end.
    pub(crate) is_joined: AtomicBool,
}

/// The loops that were added through one handle of the shutdown, which owns them.
#[derive(Default)]
pub(crate) struct OwnedLoops(Mutex<Vec<Weak<LoopHandle>>>);

// === impl LoopHandle ===

impl LoopHandle {
    /// Signals the loop to stop now, and waits until it has ended. When the time is almost up, the
    /// loop gets its last call; when it is up, the loop is aborted.
    pub(crate) async fn join(&self, cx: TaskCx) -> Result<(), String> {
        self.is_joined.store(true, Ordering::Relaxed);
        self.gate.close();
        self.gate.cut();
        let left = cx.remaining();
        tokio::select! {
            () = self.over.cancelled() => return self.ended(),
            () = tokio::time::sleep(left - TO_CLEAR_UP.min(left / 2)) => self.last_call.cancel(),
            () = cx.cancelled() => {
                // The time was shortened. The closing phase joins the loop once more.
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
        // Waits for the tasks that the loop has spawned under its passes.
        self.gate.drained(cx.shutdown_deadline()).await;
        let aborted = "aborted: the loop did not end in time".to_owned();
        Err([Some(aborted), self.ended().err()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "))
    }

    /// Ends the loop as [`LoopHandle::join`] does, while there is no shutdown, within `left`.
    pub(crate) async fn end_within(&self, left: Duration) -> Result<(), String> {
        self.is_joined.store(true, Ordering::Relaxed);
        self.gate.close();
        self.gate.cut_and_report();
        let end = tokio::time::Instant::from(now()) + left;
        let clear_up = TO_CLEAR_UP.min(left / 2);
        if tokio::time::timeout_at(end - clear_up, self.over.cancelled()).await.is_err() {
            self.last_call.cancel();
            if tokio::time::timeout_at(end, self.over.cancelled()).await.is_err() {
                self.task.abort();
                return match tokio::time::timeout(GRACE, self.over.cancelled()).await {
                    Ok(()) => Err("aborted".into()),
                    Err(_) => Err("aborted, but still running".into()),
                };
            }
        }
        self.ended()
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.gate.name()
    }

    /// Returns in one line what the loop is waiting for.
    pub(crate) fn summary(&self) -> String {
        self.gate.summary()
    }

    /// Takes the error of the loop, if no task has reported it.
    pub(crate) fn take_error(&self) -> Option<String> {
        lock(&self.error).take().map(|error| error.to_string())
    }

    /// Describes a loop that no task has ended. It may hold work.
    pub(crate) fn unended(&self) -> Option<String> {
        let is_running = !self.over.is_cancelled() && !self.is_joined.load(Ordering::Relaxed);
        is_running.then(|| "the loop was not ended: its phases did not run".to_owned())
    }

    fn ended(&self) -> Result<(), String> {
        let error = self.take_error();
        let cut = self.gate.report_cut_off().err();
        let all: Vec<String> = error.into_iter().chain(cut).collect();
        if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
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

    /// Returns the loops that have not been dropped.
    pub(crate) fn all(&self) -> Vec<Arc<LoopHandle>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}
