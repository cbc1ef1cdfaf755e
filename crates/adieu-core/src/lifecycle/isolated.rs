//! Runs a hook on a thread of its own, so that it cannot delay other hooks.
//!
//! Starts and stops are code of the application, and some of it blocks. On the runtime's workers, as
//! many blocking hooks as workers would delay all other hooks and the timers that cancel them. On a
//! current-thread runtime hooks run inline: it has only one thread, and a clock that tests pause.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::park;
use crate::shield::{drop_shielded, shielded};
use crate::task::{inside, inside_key};
use crate::time::real_now;

/// How long dropping an [`Isolated`] hook waits until the hook was dropped on its thread. A hook that
/// blocks takes longer, and is left behind.
const DROP_WAIT: Duration = Duration::from_millis(20);

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A running hook. Awaiting it returns its output, or `None` if it was dropped with its runtime.
/// Dropping it aborts the hook. The hook has ended then, unless it blocks its thread.
pub(super) enum Isolated<T> {
    Inline(Work<T>),
    Thread(OnThread<T>),
}

pub(super) struct OnThread<T> {
    output: oneshot::Receiver<T>,
    abort: CancellationToken,
    /// Fires when the hook has been dropped.
    gone: CancellationToken,
}

// === impl Isolated ===

impl<T: Send + 'static> Isolated<T> {
    pub(super) fn new(
        name: &str,
        runtime: &Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let work: Work<T> = Box::pin(work);
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Self::Inline(work);
        }
        let (abort, gone) = (CancellationToken::new(), CancellationToken::new());
        let (send, output) = oneshot::channel();
        let run = {
            let (key, runtime) = (inside_key(), runtime.clone());
            let (abort, gone) = (abort.clone(), gone.clone().drop_guard());
            move |mut work: Work<T>| {
                let polled = std::future::poll_fn(|cx| inside(key, || work.as_mut().poll(cx)));
                let ended = async {
                    tokio::select! {
                        biased;
                        output = polled => drop(send.send(output)),
                        () = abort.cancelled() => {}
                    }
                };
                // Shielded: timers panic if the runtime was dropped.
                let _ = shielded(|| runtime.block_on(ended));
                drop_shielded(work);
                drop(gone);
            }
        };
        // The hook is sent to the thread after it was started, so that it can run inline if no thread
        // can be started.
        let (give, given) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("adieu {name}"));
        if thread.spawn(move || given.recv().map(run)).is_err() {
            return Self::Inline(work);
        }
        let _ = give.send(work);
        Self::Thread(OnThread { output, abort, gone })
    }

    /// Aborts the hook, and waits until it has ended. Returns false if it is still running after
    /// `within`.
    pub(super) async fn abort(self, within: Duration) -> bool {
        match &self {
            Self::Inline(_) => true,
            Self::Thread(OnThread { abort, gone, .. }) => {
                abort.cancel();
                tokio::time::timeout(within, gone.cancelled()).await.is_ok()
            }
        }
    }
}

impl<T> Future for Isolated<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            Self::Inline(work) => work.as_mut().poll(cx).map(Some),
            Self::Thread(thread) => Pin::new(&mut thread.output).poll(cx).map(Result::ok),
        }
    }
}

impl<T> Drop for OnThread<T> {
    fn drop(&mut self) {
        self.abort.cancel();
        // Later code must not run concurrently with the hook, unless the hook blocks its thread.
        let _ = park::block_on_until(pin!(self.gone.cancelled()), real_now() + DROP_WAIT);
    }
}
