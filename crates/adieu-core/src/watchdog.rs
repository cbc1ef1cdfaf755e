//! A plain thread that ends the process when nothing else can.
//!
//! It needs no runtime, takes no lock that others hold for long, and writes its last words from
//! another thread, so that even a stderr that blocks cannot keep it from ending the process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::journal::write_line;
use crate::signals::end_now;
use crate::sync::lock;
use crate::time::{Duration, Instant, real_now};

/// How long last words may take.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(250);

/// Ends the process at a deadline, unless it is called off.
#[derive(Clone)]
pub(crate) struct Watchdog {
    shared: Arc<Kennel>,
}

struct Kennel {
    orders: Mutex<Orders>,
    changed: Condvar,
}

struct Orders {
    thread_started: bool,
    /// On the real clock.
    deadline: Option<Instant>,
    exit: Option<u8>,
}

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new() -> Self {
        let orders = Orders { thread_started: false, deadline: None, exit: None };
        Self { shared: Arc::new(Kennel { orders: Mutex::new(orders), changed: Condvar::new() }) }
    }

    /// Starts the thread, once. At the deadline it says what `waiting_for` returns and ends the
    /// process with `code`.
    pub(crate) fn start(
        &self,
        code: u8,
        waiting_for: impl Fn() -> String + Send + 'static,
    ) -> std::io::Result<()> {
        let mut orders = lock(&self.shared.orders);
        if orders.thread_started {
            return Ok(());
        }
        let watchdog = self.clone();
        std::thread::Builder::new()
            .name("adieu watchdog".into())
            .spawn(move || watchdog.watch(code, waiting_for))?;
        orders.thread_started = true;
        Ok(())
    }

    /// Sets the deadline, or brings it nearer.
    pub(crate) fn arm(&self, left: Duration) {
        let at = real_now() + left;
        let mut orders = lock(&self.shared.orders);
        orders.deadline = Some(orders.deadline.map_or(at, |deadline| deadline.min(at)));
        drop(orders);
        self.shared.changed.notify_all();
    }

    /// How long it is until the deadline; `None` if there is none.
    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = lock(&self.shared.orders).deadline;
        deadline.map(|deadline| deadline.saturating_duration_since(real_now()))
    }

    pub(crate) fn disarm(&self) {
        lock(&self.shared.orders).deadline = None;
        self.shared.changed.notify_all();
    }

    /// Ends the process with this code, if the thread was started.
    pub(crate) fn exit(&self, code: u8) {
        lock(&self.shared.orders).exit = Some(code);
        self.shared.changed.notify_all();
    }

    fn watch(&self, code: u8, waiting_for: impl Fn() -> String + Send + 'static) {
        let mut orders = lock(&self.shared.orders);
        loop {
            if let Some(code) = orders.exit {
                end_now(code);
            }
            orders = match orders.deadline {
                None => self.shared.changed.wait(orders).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(real_now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.shared.changed.wait_timeout(orders, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(orders);
        last_words(move || {
            format!(
                "watchdog              the deadline has passed, exit code {code}; waiting for {}",
                waiting_for()
            )
        });
        end_now(code)
    }
}

/// Writes to stderr, but waits for that no longer than a moment.
pub(crate) fn last_words(words: impl FnOnce() -> String + Send + 'static) {
    let (said, done) = std::sync::mpsc::channel();
    let spoken = std::thread::Builder::new().spawn(move || {
        write_line(&words());
        let _ = said.send(());
    });
    if spoken.is_ok() {
        let _ = done.recv_timeout(LAST_WORDS);
    }
}
