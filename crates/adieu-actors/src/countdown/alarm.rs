//! A timer that works when all worker threads of the runtime are blocked.
//!
//! tokio's workers drive its timers. Actors that block their threads may block all workers. Then a
//! drain that is awaited in `block_on` would not be woken at its deadline.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use adieu_core::adapter::lock;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

/// Wakes tasks at given instants, from a thread of its own. Dropping it ends and joins the thread.
#[derive(Debug)]
pub(super) struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wakers: Vec<(Instant, Waker)>,
    is_over: bool,
}

/// Resolves at an instant.
pub(super) struct AlarmSleep<'a> {
    alarm: &'a Alarm,
    at: Instant,
    is_registered: bool,
}

// === impl Alarm ===

impl Alarm {
    /// Returns an alarm, or `None` on a current-thread runtime: there no task runs while the thread is
    /// blocked, and the clock may be paused.
    pub(super) fn new() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("adieu-alarm".into());
        let thread = thread.spawn(move || inside.run()).ok()?;
        Some(Self { shared, thread: Some(thread) })
    }

    pub(super) fn sleep_until(&self, at: Instant) -> AlarmSleep<'_> {
        AlarmSleep { alarm: self, at, is_registered: false }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It only wakes tasks, so it does not panic, and ends at once.
        }
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.is_over {
            let now = Instant::now();
            let due: Vec<_> = state.wakers.extract_if(.., |(at, _)| *at <= now).collect();
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(|(_, waker)| waker.wake()); // After the lock was released.
                state = self.state();
                continue;
            }
            let next = state.wakers.iter().map(|(at, _)| *at).min();
            state = match next {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

// === impl AlarmSleep ===

impl Future for AlarmSleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at <= Instant::now() {
            return Poll::Ready(());
        }
        if !self.is_registered {
            self.is_registered = true;
            let waker = cx.waker().clone();
            self.alarm.shared.state().wakers.push((self.at, waker));
            self.alarm.shared.changed.notify_one();
        }
        Poll::Pending
    }
}
