//! A plain thread that ends the process at the deadline.
//!
//! It needs no runtime and takes no lock that is held for long. It writes its message from another
//! thread, so that a stderr that blocks cannot prevent the end of the process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::journal::{event_line, write_line};
use crate::shield::shielded;
use crate::signals::end_now;
use crate::sync::lock;
use crate::time::{Duration, Instant, real_now};

/// How long the last message before the exit may take.
pub(crate) const FINAL_LINE_WAIT: Duration = Duration::from_millis(250);

/// Ends the process at a deadline, unless it is disarmed.
///
/// When the watchdog is dropped without a deadline, its thread ends. With a deadline the thread
/// remains, because the process must still end by then.
pub(crate) struct Watchdog {
    monitor: Arc<Monitor>,
}

struct Monitor {
    state: Mutex<WatchState>,
    changed: Condvar,
}

struct WatchState {
    thread_started: bool,
    /// On the real clock.
    deadline: Option<Instant>,
    exit: Option<u8>,
    /// Called at the deadline; see [`Watchdog::leave_by`].
    leave: Option<Leave>,
    to_leave: Duration,
    is_dropped: bool,
}

/// The actions of the watchdog at the deadline if the outcome is not known.
pub(crate) trait AtDeadline: Send + 'static {
    /// Decides that the process ends with `code`. Fails with another code if that was decided before.
    fn decide(&self, code: u8) -> Result<(), u8>;

    /// Logs and writes the report of a process that ends now. Runs on a thread of its own, because it may
    /// take long.
    fn conclude(self: Arc<Self>);

    /// Describes what the process waits for. May block.
    fn waiting_for(&self) -> String;
}

/// Gets the time that it may take. Returns the exit code and the cause of the delay if the outcome
/// is known.
type Leave = Box<dyn FnOnce(Duration) -> Option<(u8, String)> + Send>;

/// How long before the deadline the watchdog calls the function of [`Watchdog::leave_by`]: this
/// long, or a quarter of the remaining time if that is shorter.
const TO_LEAVE: Duration = Duration::from_millis(500);

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new() -> Self {
        let state = WatchState {
            thread_started: false,
            deadline: None,
            exit: None,
            leave: None,
            to_leave: Duration::ZERO,
            is_dropped: false,
        };
        Self { monitor: Arc::new(Monitor { state: Mutex::new(state), changed: Condvar::new() }) }
    }

    /// Starts the thread, once. At the deadline it concludes, writes what the process waits for to
    /// stderr, and ends the process with `code`, unless the function of [`Watchdog::leave_by`]
    /// returns the outcome.
    pub(crate) fn start(
        &self,
        code: u8,
        at_deadline: impl AtDeadline + Sync,
    ) -> std::io::Result<()> {
        let mut state = lock(&self.monitor.state);
        if state.thread_started {
            return Ok(());
        }
        let monitor = Arc::clone(&self.monitor);
        std::thread::Builder::new()
            .name("adieu watchdog".into())
            .spawn(move || monitor.watch(code, Arc::new(at_deadline)))?;
        state.thread_started = true;
        Ok(())
    }

    /// Makes the thread call `leave` at the deadline. `leave` finishes the remaining work within the
    /// given time and returns the exit code and the cause of the delay, or `None` if the outcome is
    /// not known.
    pub(crate) fn leave_by(
        &self,
        leave: impl FnOnce(Duration) -> Option<(u8, String)> + Send + 'static,
    ) {
        lock(&self.monitor.state).leave = Some(Box::new(leave));
    }

    /// Shortens the deadline: the process must exit within `left`. A part of that time is reserved
    /// for the function of [`Watchdog::leave_by`].
    pub(crate) fn arm_exit(&self, left: Duration) {
        self.arm(left);
        let mut state = lock(&self.monitor.state);
        if let Some(deadline) = state.deadline.filter(|_| state.leave.is_some()) {
            let kept = (deadline.saturating_duration_since(real_now()) / 4).min(TO_LEAVE);
            state.to_leave = kept;
            state.deadline = deadline.checked_sub(kept);
        }
        drop(state);
        self.monitor.changed.notify_all();
    }

    /// Sets or shortens the deadline.
    pub(crate) fn arm(&self, left: Duration) {
        let at = real_now() + left;
        let mut state = lock(&self.monitor.state);
        state.deadline = Some(state.deadline.map_or(at, |deadline| deadline.min(at)));
        drop(state);
        self.monitor.changed.notify_all();
    }

    /// Returns the time until the deadline; `None` if there is none.
    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = lock(&self.monitor.state).deadline;
        deadline.map(|deadline| deadline.saturating_duration_since(real_now()))
    }

    pub(crate) fn disarm(&self) {
        lock(&self.monitor.state).deadline = None;
        self.monitor.changed.notify_all();
    }

    /// Ends the process with this code, if the thread was started.
    pub(crate) fn exit(&self, code: u8) {
        lock(&self.monitor.state).exit = Some(code);
        self.monitor.changed.notify_all();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        lock(&self.monitor.state).is_dropped = true;
        self.monitor.changed.notify_all();
    }
}

// === impl Monitor ===

impl Monitor {
    fn watch(&self, code: u8, at_deadline: Arc<impl AtDeadline + Sync>) {
        let Some((leave, within)) = self.until_deadline() else { return };
        // If the outcome is known, its exit code is more useful than the watchdog's own.
        let known = leave.and_then(|leave| shielded(|| leave(within)).ok().flatten());
        let (code, hung) = match known {
            Some((code, hung)) => (code, Some(hung)),
            None => match at_deadline.decide(code) {
                Ok(()) => {
                    let concluding = Arc::clone(&at_deadline);
                    wait_briefly(move || concluding.conclude());
                    (code, None)
                }
                Err(decided) => (decided, None),
            },
        };
        write_final_line(move || {
            let hung = hung.unwrap_or_else(|| at_deadline.waiting_for());
            let fields = [("exit_code", &*code.to_string()), ("waiting_for", &hung)];
            event_line("deadline passed", &fields)
        });
        end_now(code)
    }

    /// Waits for the deadline. Returns `None` if the watchdog was dropped without one.
    fn until_deadline(&self) -> Option<(Option<Leave>, Duration)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(code) = state.exit {
                end_now(code);
            }
            state = match state.deadline {
                None if state.is_dropped => return None,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(real_now());
                    if left.is_zero() {
                        return Some((state.leave.take(), state.to_leave));
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Writes a line to stderr, and waits for that 250 ms at most.
pub(crate) fn write_final_line(line: impl FnOnce() -> String + Send + 'static) {
    wait_briefly(move || write_line(&line()));
}

/// Calls `f` on another thread, and waits for that 250 ms at most.
fn wait_briefly(f: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        f();
        let _ = done.send(());
    });
    if thread.is_ok() {
        let _ = ended.recv_timeout(FINAL_LINE_WAIT);
    }
}
