//! Awaits a future on a plain thread, without a runtime.

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

/// Polls `future` on the calling thread until it is ready. Returns `None` if it is not ready at
/// `give_up`.
///
/// The time is read from the real clock, because the timers of a runtime stop when its threads are
/// blocked.
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
