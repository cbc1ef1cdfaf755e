//! The thread that calls subscribers and recorders.
//!
//! A subscriber may block (a full pipe, a slow disk) and may panic (`tracing_subscriber::fmt` does
//! when stdout and stderr are both broken pipes). Neither may disturb a driver, a lease or a
//! connection. These only queue their lines, which never blocks; this thread calls the subscriber.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Condvar, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level};

use crate::park;
use crate::shield::{drop_shielded, shielded};
use crate::sync::lock;
use crate::time::real_now;

/// How long a subscriber may take for a line before it counts as blocked.
const BLOCKED: Duration = Duration::from_millis(50);

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
    /// How many lines the thread has processed so far.
    done: u64,
    /// When the thread began to process the current line, on the real clock.
    busy_since: Option<Instant>,
    /// The result of the last wait for the subscriber, until the queue is empty.
    seen: Option<Seen>,
}

/// How a subscriber that was waited for has behaved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It ended lines, but not all of them.
    Behind,
    /// It had ended this many lines, and ended no other.
    Blocked { done: u64 },
}

/// Whether the subscriber of a log thread is blocked, for code that would call the same subscriber on
/// another thread.
#[derive(Clone)]
pub(crate) struct LogProgress(Arc<Queue>);

struct QueuedLine {
    /// The subscriber that receives the line; `None` for the global one.
    dispatch: Option<Dispatch>,
    emit: Box<dyn FnOnce() + Send>,
}

/// Logs the lines of adapters that belong to no shutdown.
static SHARED: LazyLock<LogThread> = LazyLock::new(LogThread::default);

/// Logs the lines of [`log_aside`] while there is no subscriber.
type Fallback = fn(&mut dyn FnMut());
static FALLBACK: OnceLock<Fallback> = OnceLock::new();

/// Queues a log line outside of any shutdown. A separate thread logs it, with the subscriber of the
/// calling thread.
///
/// Returns at once, and does nothing if no subscriber is interested in this level. If there is no
/// subscriber, and a shutdown of this process logs to stderr, the line goes there if its level is
/// INFO or higher. `prepare` is called on the calling thread, and returns the function that logs on
/// the other one.
///
/// Use it for tasks that belong to no shutdown and must survive a subscriber that panics or blocks.
/// Tasks that belong to a shutdown use [`log`](crate::adapter::log).
pub fn log_aside<Emit: FnOnce() + Send + 'static>(level: Level, prepare: impl FnOnce() -> Emit) {
    let (is_enabled, falls_back) = (level <= LevelFilter::current(), level <= Level::INFO);
    if !is_enabled && !falls_back {
        return;
    }
    let dispatch = current_dispatch();
    if dispatch.is_none()
        && falls_back
        && let Some(fallback) = FALLBACK.get()
    {
        let mut emit = Some(prepare());
        SHARED.submit(None, move || {
            fallback(&mut || {
                if let Some(emit) = emit.take() {
                    emit();
                }
            });
        });
    } else if is_enabled {
        SHARED.submit(dispatch, prepare());
    }
}

/// Sets what logs the lines of [`log_aside`] while there is no subscriber.
pub(crate) fn fall_back_to(fallback: Fallback) {
    let _ = FALLBACK.set(fallback);
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
        self.queue.is_idle()
    }

    pub(crate) fn progress(&self) -> LogProgress {
        LogProgress(Arc::clone(&self.queue))
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

// === impl LogProgress ===

impl LogProgress {
    /// Returns whether the subscriber is blocked, as far as is known. Returns at once.
    pub(crate) fn is_blocked(&self) -> bool {
        if self.0.is_idle() {
            return false;
        }
        let state = lock(&self.0.state);
        let busy =
            state.busy_since.is_some_and(|since| real_now().duration_since(since) >= BLOCKED);
        busy || state.seen == Some(Seen::Blocked { done: state.done })
    }

    /// Waits until the subscriber has processed the lines so far, or for 50 ms, and returns whether it is
    /// blocked. A subscriber that is behind and not blocked is waited for once.
    pub(crate) fn wait_until_blocked(&self) -> bool {
        if self.0.is_idle() {
            lock(&self.0.state).seen = None;
            return false;
        }
        let (seen, before) = {
            let state = lock(&self.0.state);
            (state.seen, state.done)
        };
        if seen == Some(Seen::Behind) || self.is_blocked() {
            return self.is_blocked();
        }
        let mut pending = self.0.pending.subscribe();
        let idle = async move {
            // The sender lives as long as the queue, so the wait cannot fail.
            let _ = pending.wait_for(|pending| *pending == 0).await;
        };
        if park::block_on_until(pin!(idle), real_now() + BLOCKED).is_none() {
            let mut state = lock(&self.0.state);
            let is_same = state.done == before;
            state.seen = Some(if is_same { Seen::Blocked { done: before } } else { Seen::Behind });
        }
        self.is_blocked()
    }
}

impl std::fmt::Debug for LogProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogProgress").finish_non_exhaustive()
    }
}

// === impl Queue ===

impl Queue {
    fn is_idle(&self) -> bool {
        *self.pending.borrow() == 0
    }

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
        if state.busy_since.take().is_some() {
            state.done += 1;
        }
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.busy_since = Some(real_now());
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static LOGGED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn s1823_a_line_of_no_shutdown_is_logged_without_a_subscriber() {
        let logged = || {
            assert!(SHARED.flush(Duration::from_secs(10)));
            LOGGED.load(Ordering::Relaxed)
        };
        let lines = |level| log_aside(level, || || _ = LOGGED.fetch_add(1, Ordering::Relaxed));
        // Not before a shutdown logs to stderr.
        lines(Level::WARN);
        assert_eq!(logged(), 0);
        fall_back_to(|emit| {
            LOGGED.fetch_add(10, Ordering::Relaxed);
            emit();
        });
        lines(Level::WARN);
        lines(Level::INFO);
        assert_eq!(logged(), 22);
        lines(Level::DEBUG);
        assert_eq!(logged(), 22);
    }
}
