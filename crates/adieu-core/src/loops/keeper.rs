//! Keeps a loop running: restarts it after a crash, until its gate is closed.
//!
//! The runtime owns the loop's task. The shutdown joins it in a phase in which no new work can
//! arrive. A hard stop skips that phase, so a closing phase joins the task as well.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::LoopSpec;
use super::backoff::Backoff;
use super::context::LoopCx;
use crate::background::LoopHandle;
use crate::coordinator::Shared;
use crate::gate::Gate;
use crate::sync::lock;
use crate::task::{BoxError, Ended, catch, end_of, inside};
use crate::time::now;

/// The work of a loop, from its start to its end or crash. It is run again after a crash.
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

// === impl Keeper ===

impl<W: Work> Keeper<W> {
    pub(crate) fn new(work: W, spec: &LoopSpec, gate: Gate, shared: &Arc<Shared>) -> Self {
        let cx =
            LoopCx { gate, last_call: CancellationToken::new(), shared: Arc::downgrade(shared) };
        Self { work, cx, backoff: spec.backoff, random: spec.random() }
    }

    /// Spawns the loop. It begins when the returned sender sends, and ends at once if the sender is
    /// dropped.
    pub(crate) fn spawn(self, home: &Handle) -> (LoopHandle, oneshot::Sender<()>) {
        let (begin, begun) = oneshot::channel();
        let (over, error) = (CancellationToken::new(), Arc::default());
        let (gate, last_call) = (self.cx.gate.clone(), self.cx.last_call.clone());
        let key = self.cx.shared.as_ptr().addr();
        let fired_when_dropped = over.clone().drop_guard();
        let kept = {
            let error = Arc::clone(&error);
            async move {
                if begun.await.is_ok() {
                    *lock(&error) = within(key, self.keep()).await;
                }
                // Dropped last, even if the task is aborted: the loop is over when everything else of
                // it was dropped.
                drop(fired_when_dropped);
            }
        };
        let task = home.spawn(kept).abort_handle();
        let is_joined = AtomicBool::new(false);
        (LoopHandle { gate, last_call, over, error, task, is_joined }, begin)
    }

    /// Runs the loop until it ends for good. Returns an error if it crashed after its gate had closed.
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

/// Awaits `work` as part of the shutdown `key`, so that awaiting that shutdown inside it is an error
/// instead of a deadlock.
pub(super) async fn within<F: Future>(key: usize, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| inside(key, || work.as_mut().poll(cx))).await
}
