//! A connection, and everything that hyper starts for it, in one task.
//!
//! With a task for each, a frame passes through two tasks on its way to the socket, and through two more
//! on the other side. tokio runs three tasks in a row on the thread that woke them. It passes the fourth to
//! another thread, which costs more than the frame itself.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// After so many rounds, other tasks run before the next one.
const ROUNDS: usize = 16;

/// Futures that are polled in one task, until all of them have ended.
pub(super) struct Together {
    shared: Arc<Shared>,
    /// There are two or three. The newest is the first: streams come before their connection, which sends
    /// what they have written.
    parts: Vec<Part>,
}

/// Adds futures to those that are polled together.
#[derive(Clone, Default)]
pub(super) struct Executor {
    shared: Arc<Shared>,
}

struct Part {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Woken>,
    waker: Waker,
}

/// Whether one part is to be polled.
struct Woken {
    is_set: AtomicBool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    added: Mutex<Added>,
    /// Whether a part was woken or added since the last round began.
    is_woken: AtomicBool,
    /// Whether the parts are being polled, so that a woken part needs no wake-up of the task.
    is_polling: AtomicBool,
    task: AtomicWaker,
}

#[derive(Default)]
struct Added {
    parts: Vec<Part>,
    /// Whether nothing polls them any more. A part that waited here for ever would keep itself alive.
    is_closed: bool,
}

// === impl Together ===

impl Together {
    /// Polls `first`, and all futures that the executor is given.
    pub(super) fn new(
        executor: Executor,
        first: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let shared = executor.shared;
        let parts = vec![Part::new(&shared, first)];
        Self { shared, parts }
    }

    /// Polls each part that was woken.
    fn poll_parts(&mut self) {
        let mut added = self.shared.take_added();
        if !added.is_empty() {
            added.append(&mut self.parts);
            self.parts = added;
        }
        self.parts.retain_mut(Part::is_pending);
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.shared.added().is_closed = true;
        drop(self.shared.take_added());
    }
}

impl Future for Together {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.task.register(cx.waker());
        self.shared.is_polling.store(true, Ordering::SeqCst);
        for _ in 0..ROUNDS {
            self.shared.is_woken.store(false, Ordering::SeqCst);
            self.poll_parts();
            if !self.shared.is_woken.load(Ordering::SeqCst) {
                break;
            }
        }
        self.shared.is_polling.store(false, Ordering::SeqCst);
        // Either this observes a part that was woken before, or its waker observes that nothing is polled.
        if self.shared.is_woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        } else if self.parts.is_empty() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

// === impl Part ===

impl Part {
    fn new(shared: &Arc<Shared>, future: impl Future<Output = ()> + Send + 'static) -> Self {
        let is_set = AtomicBool::new(true);
        let woken = Arc::new(Woken { is_set, shared: Arc::clone(shared) });
        Self { future: Box::pin(future), waker: Waker::from(Arc::clone(&woken)), woken }
    }

    /// Polls the future if it was woken. Returns whether it has not ended.
    fn is_pending(&mut self) -> bool {
        if !self.woken.is_set.swap(false, Ordering::SeqCst) {
            return true;
        }
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending()
    }
}

// === impl Executor ===

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let part = Part::new(&self.shared, future);
        let mut added = self.shared.added();
        if !added.is_closed {
            added.parts.push(part);
            drop(added);
            self.shared.wake();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_added(&self) -> Vec<Part> {
        mem::take(&mut self.added().parts)
    }

    fn wake(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_set.swap(true, Ordering::SeqCst) {
            self.shared.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt;
    use hyper::rt::Executor as _;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn parts_wake_each_other_within_one_poll() {
        let executor = Executor::default();
        let (there, mut pings) = mpsc::channel::<u32>(1);
        let (back, mut pongs) = mpsc::channel::<u32>(1);
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&rounds);
        executor.execute(async move {
            while let Some(ping) = pings.recv().await {
                back.send(ping).await.unwrap();
            }
        });
        let mut together = Together::new(executor, async move {
            for number in 0..5 {
                there.send(number).await.unwrap();
                assert_eq!(pongs.recv().await, Some(number));
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!((&mut together).now_or_never(), Some(()));
        assert_eq!(rounds.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn a_part_that_wakes_itself_again_and_again_lets_other_tasks_run() {
        let executor = Executor::default();
        let mut together = Together::new(executor, async {
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
            .await
        });
        assert_eq!((&mut together).now_or_never(), None);
    }

    #[tokio::test]
    async fn parts_are_woken_from_other_threads_and_polled_until_all_have_ended() {
        let executor = Executor::default();
        let sum = Arc::new(AtomicUsize::new(0));
        let (first, firsts) = mpsc::channel::<usize>(1);
        let (second, seconds) = mpsc::channel::<usize>(1);
        let add = |mut numbers: mpsc::Receiver<usize>| {
            let sum = Arc::clone(&sum);
            async move {
                while let Some(number) = numbers.recv().await {
                    sum.fetch_add(number, Ordering::SeqCst);
                }
            }
        };
        executor.execute(add(seconds));
        let together = Together::new(executor, add(firsts));
        let senders: Vec<_> = [first, second]
            .map(|numbers| {
                std::thread::spawn(move || {
                    (1..=10_000).for_each(|number| numbers.blocking_send(number).unwrap());
                })
            })
            .into();
        together.await;
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(sum.load(Ordering::SeqCst), 10_000 * 10_001);
    }

    #[tokio::test]
    async fn a_part_that_comes_too_late_is_dropped() {
        let executor = Executor::default();
        drop(Together::new(executor.clone(), async {}));
        let (sender, mut receiver) = mpsc::channel::<()>(1);
        executor.execute(async move { sender.closed().await });
        assert_eq!(receiver.recv().await, None);
    }
}
