//! Keeps a loop running: starts it again when it crashes, and ends it when it must end.
//!
//! The runtime owns the task; the shutdown joins it, in a phase where nothing new can arrive. A
//! hard stop skips that phase, so a closing one does the same once more.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::LoopSpec;
use super::backoff::Backoff;
use super::context::LoopCx;
use crate::budget::GRACE;
use crate::coordinator::Shared;
use crate::coordinator::machine::Ended;
use crate::gate::Gate;
use crate::sync::lock;
use crate::task::{BoxError, TaskCx, catch, end_of, inside};
use crate::time::now;

/// What the last of a loop's time is for: giving back what was interrupted, and leaving.
const TO_CLEAR_UP: Duration = Duration::from_secs(1);

/// What a loop does, from its start to its end or crash. Run anew after a crash.
pub(crate) trait Work: Send + 'static {
    fn run(&mut self, cx: &LoopCx) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// A loop that is about to run.
pub(crate) struct Keeper<W> {
    work: W,
    cx: LoopCx,
    backoff: Backoff,
    random: fastrand::Rng,
}

/// Ends a loop, and knows whether it has ended. Dropping it ends the loop at once, so no loop
/// outlives its shutdown.
pub(crate) struct Ending {
    gate: Gate,
    last_call: CancellationToken,
    over: CancellationToken,
    /// Why it ended, if that is not as it should be and has not been said.
    error: Arc<Mutex<Option<Arc<str>>>>,
    task: AbortHandle,
}

// === impl Keeper ===

impl<W: Work> Keeper<W> {
    pub(crate) fn new(work: W, spec: &LoopSpec, gate: Gate, shared: &Arc<Shared>) -> Self {
        let cx =
            LoopCx { gate, last_call: CancellationToken::new(), shared: Arc::downgrade(shared) };
        Self { work, cx, backoff: spec.backoff, random: spec.random() }
    }

    /// Spawns the loop. It begins when told to, or ends at once when that can never happen.
    pub(crate) fn spawn(self, home: &Handle) -> (Ending, oneshot::Sender<()>) {
        let (begin, told) = oneshot::channel();
        let (over, error) = (CancellationToken::new(), Arc::default());
        let (gate, last_call) = (self.cx.gate.clone(), self.cx.last_call.clone());
        let key = self.cx.shared.as_ptr().addr();
        let fired_when_dropped = over.clone().drop_guard();
        let kept = {
            let error = Arc::clone(&error);
            async move {
                if told.await.is_ok() {
                    *lock(&error) = within(key, self.keep()).await;
                }
                // Last of all: also when the task is aborted, it is over when all else is gone.
                drop(fired_when_dropped);
            }
        };
        let task = home.spawn(kept).abort_handle();
        (Ending { gate, last_call, over, error, task }, begin)
    }

    /// Runs the loop until it ends for good; and says why, if that is not as it should be.
    async fn keep(self) -> Option<Arc<str>> {
        let Self { mut work, cx, backoff, mut random } = self;
        let mut crashes = 0;
        while !cx.gate.is_closed() {
            let began = now();
            let ended = catch(async { end_of(work.run(&cx).await) }).await;
            let error: Arc<str> = match ended {
                Ended::Failed(error) => error,
                Ended::Panicked(message) => format!("panicked: {message}").into(),
                Ended::Finished | Ended::Aborted | Ended::LeftBehind => return None,
            };
            if cx.gate.is_closed() {
                return Some(error);
            }
            crashes = backoff.count(crashes, now().saturating_duration_since(began));
            let pause = backoff.pause(crashes, random.f64());
            cx.log_failure("loop", &error, Some(pause));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = cx.takes_no_more() => {}
            }
        }
        None
    }
}

/// Awaits `work` as part of the shutdown `key`, so that awaiting that shutdown in it is an error
/// and not a wait for itself.
pub(super) async fn within<F: Future>(key: usize, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| inside(key, || work.as_mut().poll(cx))).await
}

// === impl Ending ===

impl Ending {
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

    /// Ends the loop as [`Ending::join`] does, while there is no shutdown, within `left`.
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

impl Drop for Ending {
    fn drop(&mut self) {
        self.task.abort();
    }
}
