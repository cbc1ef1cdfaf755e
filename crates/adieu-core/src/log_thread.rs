//! The thread that calls subscribers and recorders.
//!
//! A subscriber may block (a full pipe, a slow disk) and may panic (`tracing_subscriber::fmt` does
//! when stdout and stderr are both broken pipes). Neither may disturb a driver, a lease or a
//! connection. These only queue their lines, which never blocks; this thread calls the subscriber.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;

use crate::park;
use crate::shield::{drop_shielded, shielded};
use crate::sync::lock;
use crate::time::real_now;

/// The length of the queue. While the subscriber blocks, further lines are dropped and counted.
const MAX_LINES: usize = 10_000;

/// A queue of lines, and the thread that processes it. The thread starts with the first line.
///
/// When the `LogThread` is dropped, the thread processes the queue and ends. It is not joined: a
/// subscriber that blocks for ever must not keep the process alive. Use [`LogThread::flush`] to wait
/// for the lines.
pub(crate) struct LogThread {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Lines that are queued or being processed.
    pending: watch::Sender<usize>,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<QueuedLine>,
    dropped: usize,
    has_thread: bool,
    is_closed: bool,
}

struct QueuedLine {
    /// The subscriber that receives the line; `None` for the global one.
    dispatch: Option<Dispatch>,
    emit: Box<dyn FnOnce() + Send>,
}

/// Logs the lines of adapters that belong to no shutdown.
static SHARED: LazyLock<LogThread> = LazyLock::new(LogThread::default);

/// Queues a log line outside of any shutdown. A separate thread logs it, with the subscriber of the
/// calling thread.
///
/// Returns at once, and does nothing if no subscriber is interested in this level. `prepare` is
/// called on the calling thread, and returns the function that logs on the other one.
///
/// Use it for tasks that belong to no shutdown and must survive a subscriber that panics or blocks.
/// Tasks that belong to a shutdown use [`log`](crate::adapter::log).
pub fn log_aside<Emit: FnOnce() + Send + 'static>(
    level: tracing::Level,
    prepare: impl FnOnce() -> Emit,
) {
    if level <= LevelFilter::current() {
        SHARED.submit(current_dispatch(), prepare());
    }
}

/// Waits for the lines of [`log_aside`] at the end of the process, for up to `within`.
pub(crate) fn flush_shared(within: Duration) {
    if *SHARED.queue.pending.borrow() > 0 {
        let _ = SHARED.flush(within);
    }
}

/// Returns the subscriber of the calling thread; `None` if there is none yet.
pub(crate) fn current_dispatch() -> Option<Dispatch> {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    (!dispatch.is::<NoSubscriber>()).then_some(dispatch)
}

// === impl LogThread ===

impl LogThread {
    /// Queues a line. Never blocks, and calls no code of the application.
    pub(crate) fn submit(&self, dispatch: Option<Dispatch>, emit: impl FnOnce() + Send + 'static) {
        let line = QueuedLine { dispatch, emit: Box::new(emit) };
        let mut state = lock(&self.queue.state);
        if state.lines.len() >= MAX_LINES {
            state.dropped += 1;
            drop(state);
            drop_shielded(line); // It may own values of the application.
            return;
        }
        state.lines.push_back(line);
        self.queue.pending.send_modify(|pending| *pending += 1);
        if !state.has_thread {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("adieu log".into());
            // If no thread can be started, the lines stay queued, and the next line tries again.
            state.has_thread = thread.spawn(move || queue.process()).is_ok();
        }
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Waits until every line has been processed.
    pub(crate) async fn idle(&self) {
        let mut pending = self.queue.pending.subscribe();
        // The sender is `self`, so the wait cannot fail.
        let _ = pending.wait_for(|pending| *pending == 0).await;
    }

    /// Blocks until every line has been processed. Returns false if that takes longer than `within`.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        park::block_on_until(pin!(self.idle()), real_now() + within).is_some()
    }

    pub(crate) fn is_idle(&self) -> bool {
        *self.queue.pending.borrow() == 0
    }
}

impl Default for LogThread {
    fn default() -> Self {
        let queue = Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            pending: watch::Sender::new(0),
        };
        Self { queue: Arc::new(queue) }
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        lock(&self.queue.state).is_closed = true;
        self.queue.changed.notify_one();
    }
}

// === impl Queue ===

impl Queue {
    fn process(&self) {
        while let Some((line, dropped)) = self.next() {
            // A panic loses this line only.
            let _ = shielded(|| line.emit(dropped));
            self.pending.send_if_modified(|pending| {
                *pending -= 1;
                *pending == 0
            });
        }
    }

    /// Waits for the next line, and returns it with the number of lines that were dropped before it.
    /// Returns `None` when the queue is empty and closed.
    fn next(&self) -> Option<(QueuedLine, usize)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(line) = state.lines.pop_front() {
                return Some((line, std::mem::take(&mut state.dropped)));
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

// === impl QueuedLine ===

impl QueuedLine {
    fn emit(self, dropped: usize) {
        let Self { dispatch, emit } = self;
        let emit = || {
            if dropped > 0 {
                tracing::warn!(dropped, "log lines dropped: the subscriber was too slow");
            }
            emit();
        };
        match &dispatch {
            Some(dispatch) => tracing::dispatcher::with_default(dispatch, emit),
            None => emit(),
        }
    }
}
