//! A pause in which the other tasks run that are ready on the same thread.
//!
//! A frame costs more than the messages in it. So a frame that could take more messages waits for the tasks
//! that are about to send them. They run within one turn of the scheduler, or not soon.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A turn of the scheduler. It can be awaited again and again.
pub(super) struct Turn {
    end: Arc<End>,
    waker: Waker,
    has_begun: bool,
}

/// Woken by the scheduler at the end of the turn.
#[derive(Default)]
struct End {
    is_over: AtomicBool,
    /// Whether the turn is awaited. A task that is woken for nothing makes the scheduler wake another
    /// thread for it.
    is_awaited: AtomicBool,
    task: AtomicWaker,
}

// === impl Turn ===

impl Turn {
    pub(super) fn new() -> Self {
        let end = Arc::<End>::default();
        Self { waker: Waker::from(Arc::clone(&end)), end, has_begun: false }
    }

    /// Begins a turn, unless one has begun. Ready when the other tasks have run.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.end.task.register(cx.waker());
        if !self.has_begun {
            self.has_begun = true;
            self.end.is_over.store(false, Ordering::SeqCst);
            self.end.is_awaited.store(true, Ordering::SeqCst);
            // The first poll hands the waker to the scheduler. Nothing else is needed of the future.
            let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&self.waker));
        }
        if self.end.is_over.load(Ordering::SeqCst) {
            self.has_begun = false;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ends the turn early: the frame was sent.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            self.end.is_awaited.store(false, Ordering::SeqCst);
        }
    }
}

impl Wake for End {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::SeqCst);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn the_tasks_that_are_ready_run_within_a_turn() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let mut turn = Turn::new();
                for _ in 0..3 {
                    let has_run = Rc::new(Cell::new(false));
                    let runs = Rc::clone(&has_run);
                    let other = tokio::task::spawn_local(async move { runs.set(true) });
                    poll_fn(|cx| turn.poll(cx)).await;
                    assert!(has_run.get());
                    other.await.unwrap();
                }
            })
            .await;
    }

    #[tokio::test]
    async fn polling_again_does_not_end_a_turn() {
        let mut turn = Turn::new();
        poll_fn(|cx| {
            assert!((0..100).all(|_| turn.poll(cx).is_pending()));
            Poll::Ready(())
        })
        .await;
    }
}
