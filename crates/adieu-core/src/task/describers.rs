//! Threads that ask tasks to describe themselves.
//!
//! A description is the user's code and may block. So it runs neither on a driver nor on the thread
//! of the log, and one that blocks holds up no other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::Detail;
use crate::sync::lock;

/// Descriptions that block beyond this many at once hold up the others.
const MOST_THREADS: usize = 8;

/// A queue of descriptions to ask for, and threads that work on it while there are any.
///
/// The threads are not joined: a description that blocks for ever must not keep the process alive.
pub(crate) struct Describers {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<QueueState>,
    /// Descriptions that are queued or being made.
    pending: watch::Sender<usize>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<Detail>>,
    threads: usize,
}

// === impl Describers ===

impl Describers {
    /// Queues a description. Never blocks and calls nothing of the application.
    pub(crate) fn submit(&self, detail: Arc<Detail>) {
        let mut state = lock(&self.queue.state);
        state.waiting.push_back(detail);
        self.queue.pending.send_modify(|pending| *pending += 1);
        if state.threads < MOST_THREADS {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("adieu describe".into());
            // Without a thread the description waits for the next one that is submitted.
            state.threads += usize::from(thread.spawn(move || queue.process()).is_ok());
        }
    }

    /// Waits until every description has been made.
    pub(crate) async fn idle(&self) {
        // The sender is `self`, so the wait cannot fail.
        let _ = self.queue.pending.subscribe().wait_for(|pending| *pending == 0).await;
    }

    pub(crate) fn is_idle(&self) -> bool {
        *self.queue.pending.borrow() == 0
    }
}

impl Default for Describers {
    fn default() -> Self {
        let queue = Queue { state: Mutex::default(), pending: watch::Sender::new(0) };
        Self { queue: Arc::new(queue) }
    }
}

// === impl Queue ===

impl Queue {
    fn process(&self) {
        while let Some(detail) = self.next() {
            detail.ask();
            drop(detail);
            self.pending.send_modify(|pending| *pending -= 1);
        }
    }

    fn next(&self) -> Option<Arc<Detail>> {
        let mut state = lock(&self.state);
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}
