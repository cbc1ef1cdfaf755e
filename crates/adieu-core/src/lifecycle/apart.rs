//! Runs a hook where it can hold up no other: on a thread of its own.
//!
//! Starts and stops are the application's code, and some of it blocks. On the runtime's workers, as
//! many blocking hooks as there are workers would hold up all others, and the timers that are to
//! end them. On a current-thread runtime hooks stay there: it has no other thread, and a clock that
//! tests pause.

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

/// How long it is waited for a hook to be gone whose future is dropped. What blocks takes longer.
const GONE: Duration = Duration::from_millis(20);

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A hook that runs apart. Awaiting it returns its output, or `None` if it was lost with its
/// runtime. Dropping it aborts the hook: it is gone then, unless it blocks its thread.
pub(super) enum Apart<T> {
    Here(Work<T>),
    There(OnThread<T>),
}

pub(super) struct OnThread<T> {
    output: oneshot::Receiver<T>,
    abort: CancellationToken,
    /// Fires when the hook has been dropped.
    gone: CancellationToken,
}

// === impl Apart ===

impl<T: Send + 'static> Apart<T> {
    pub(super) fn new(
        name: &str,
        runtime: &Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let work: Work<T> = Box::pin(work);
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Self::Here(work);
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
                // A runtime that is gone makes timers panic.
                let _ = shielded(|| runtime.block_on(ended));
                drop_shielded(work);
                drop(gone);
            }
        };
        // Handed over when there is a thread, so that it is not lost without one.
        let (give, given) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("adieu {name}"));
        if thread.spawn(move || given.recv().map(run)).is_err() {
            return Self::Here(work);
        }
        let _ = give.send(work);
        Self::There(OnThread { output, abort, gone })
    }

    /// Aborts the hook, and waits until it is gone; false if it is still running after `within`.
    pub(super) async fn abort(self, within: Duration) -> bool {
        match &self {
            Self::Here(_) => true,
            Self::There(OnThread { abort, gone, .. }) => {
                abort.cancel();
                tokio::time::timeout(within, gone.cancelled()).await.is_ok()
            }
        }
    }
}

impl<T> Future for Apart<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            Self::Here(work) => work.as_mut().poll(cx).map(Some),
            Self::There(there) => Pin::new(&mut there.output).poll(cx).map(Result::ok),
        }
    }
}

impl<T> Drop for OnThread<T> {
    fn drop(&mut self) {
        self.abort.cancel();
        // What comes next must not run beside it. What blocks is left behind.
        let _ = park::block_on_until(pin!(self.gone.cancelled()), real_now() + GONE);
    }
}
