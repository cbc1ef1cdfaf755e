//! Awaiting on a plain thread, without any runtime's help.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::time::{Instant, real_now};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread until it is ready.
pub(crate) fn block_on<T>(future: Pin<&mut impl Future<Output = T>>) -> T {
    match poll_until(future, None) {
        Some(ready) => ready,
        None => unreachable!("there is no time at which to give up"),
    }
}

/// Polls `future` on this thread until it is ready or the real clock says so.
///
/// Timers of a runtime need that runtime to turn: this does not.
pub(crate) fn block_on_until<T>(
    future: Pin<&mut impl Future<Output = T>>,
    give_up: Instant,
) -> Option<T> {
    poll_until(future, Some(give_up))
}

fn poll_until<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    give_up: Option<Instant>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(ready);
        }
        match give_up.map(|at| at.saturating_duration_since(real_now())) {
            None => std::thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => std::thread::park_timeout(left),
        }
    }
}
