//! A plain thread that ends the process when nothing else can.
//!
//! It needs no runtime, takes no lock that others hold for long, and writes its last words from
//! another thread, so that even a stderr that blocks cannot keep it from ending the process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::journal::write_line;
use crate::shield::shielded;
use crate::signals::end_now;
use crate::sync::lock;
use crate::time::{Duration, Instant, real_now};

/// How long last words may take.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(250);

/// Ends the process at a deadline, unless it is called off.
///
/// Its thread ends when this is dropped, unless there is a deadline: that is then the one of the
/// process.
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
    /// Tells with which code the process ends at the deadline, and what was waited for, if the
    /// outcome is known by then.
    leave: Option<Leave>,
    to_leave: Duration,
    is_dropped: bool,
}

/// Is given the time that it may take.
type Leave = Box<dyn FnOnce(Duration) -> Option<(u8, String)> + Send>;

/// What of the time to exit in is kept for [`Watchdog::leave_by`]: a quarter, and this much at most.
const TO_LEAVE: Duration = Duration::from_millis(500);

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new() -> Self {
        let orders = Orders {
            thread_started: false,
            deadline: None,
            exit: None,
            leave: None,
            to_leave: Duration::ZERO,
            is_dropped: false,
        };
        Self { shared: Arc::new(Kennel { orders: Mutex::new(orders), changed: Condvar::new() }) }
    }

    /// Starts the thread, once. At the deadline it logs what `waiting_for` returns and ends the
    /// process with `code`; unless [`Watchdog::leave_by`] knows better.
    pub(crate) fn start(
        &self,
        code: u8,
        waiting_for: impl Fn() -> String + Send + 'static,
    ) -> std::io::Result<()> {
        let mut orders = lock(&self.shared.orders);
        if orders.thread_started {
            return Ok(());
        }
        let kennel = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("adieu watchdog".into())
            .spawn(move || kennel.watch(code, waiting_for))?;
        orders.thread_started = true;
        Ok(())
    }

    /// From now on `leave` is called at the deadline. It does what remains to be done, quickly, and
    /// returns the exit code; `None` if the outcome is not known.
    pub(crate) fn leave_by(
        &self,
        leave: impl FnOnce(Duration) -> Option<(u8, String)> + Send + 'static,
    ) {
        lock(&self.shared.orders).leave = Some(Box::new(leave));
    }

    /// Brings the deadline nearer: the process has this long to exit in. Some of it is kept for what
    /// is to be done then.
    pub(crate) fn arm_exit(&self, left: Duration) {
        self.arm(left);
        let mut orders = lock(&self.shared.orders);
        if let Some(deadline) = orders.deadline.filter(|_| orders.leave.is_some()) {
            let kept = (deadline.saturating_duration_since(real_now()) / 4).min(TO_LEAVE);
            orders.to_leave = kept;
            orders.deadline = deadline.checked_sub(kept);
        }
        drop(orders);
        self.shared.changed.notify_all();
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
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        lock(&self.shared.orders).is_dropped = true;
        self.shared.changed.notify_all();
    }
}

// === impl Kennel ===

impl Kennel {
    fn watch(&self, code: u8, waiting_for: impl Fn() -> String + Send + 'static) {
        let Some((leave, within)) = self.until_deadline() else { return };
        // The outcome is better than that it came late.
        let known = leave.and_then(|leave| shielded(|| leave(within)).ok().flatten());
        let (code, hung) = known.map_or((code, None), |(code, hung)| (code, Some(hung)));
        last_words(move || {
            let hung = hung.unwrap_or_else(waiting_for);
            format!(
                "watchdog              the deadline has passed, exit code {code}; waiting for {hung}"
            )
        });
        end_now(code)
    }

    /// Waits for the deadline; `None` if there will be none.
    fn until_deadline(&self) -> Option<(Option<Leave>, Duration)> {
        let mut orders = lock(&self.orders);
        loop {
            if let Some(code) = orders.exit {
                end_now(code);
            }
            orders = match orders.deadline {
                None if orders.is_dropped => return None,
                None => self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(real_now());
                    if left.is_zero() {
                        return Some((orders.leave.take(), orders.to_leave));
                    }
                    let waited = self.changed.wait_timeout(orders, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
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
