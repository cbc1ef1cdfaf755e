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

/// Polls `future` on this thread until it is ready or the real clock says so.
///
/// Timers of a runtime need that runtime to turn: this does not.
pub(crate) fn block_on_until<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    give_up: Instant,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(ready);
        }
        let left = give_up.saturating_duration_since(real_now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
