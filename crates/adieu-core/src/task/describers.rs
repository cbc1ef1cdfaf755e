//! Threads that call the description functions of tasks.
//!
//! A description is code of the application and may block. So it runs neither on a driver nor on the
//! log thread, and a description that blocks does not delay the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::Detail;
use crate::sync::lock;

/// The maximum number of threads. If that many descriptions block, the others wait.
const MAX_THREADS: usize = 8;

/// A queue of descriptions, and the threads that process it. The threads end when it is empty.
///
/// The threads are not joined: a description that blocks for ever must not keep the process alive.
pub(crate) struct Describers {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<QueueState>,
    /// The number of descriptions that are queued or running.
    pending: watch::Sender<usize>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<Detail>>,
    threads: usize,
}

// === impl Describers ===

impl Describers {
    /// Queues a description. Never blocks, and calls no code of the application.
    pub(crate) fn submit(&self, detail: Arc<Detail>) {
        let mut state = lock(&self.queue.state);
        state.waiting.push_back(detail);
        self.queue.pending.send_modify(|pending| *pending += 1);
        if state.threads < MAX_THREADS {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("adieu describe".into());
            // If no thread can be started, the description waits until the next one is submitted.
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
