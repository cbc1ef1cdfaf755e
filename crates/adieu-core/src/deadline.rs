//! An instant by which something must have ended.
//!
//! # Invariants
//!
//! 1. No method of [`Deadline`] extends it.
//! 2. A [`LiveDeadline`] never moves to a later instant: only `fetch_min` changes it.

use crate::sync::{AtomicU64, Ordering};
use crate::time::{Duration, Instant, now};

/// An instant by which something must have ended. It can be shortened, never extended.
///
/// ```
/// use adieu_core::Deadline;
/// use std::time::Duration;
///
/// let deadline = Deadline::after(Duration::from_secs(10));
/// let cut = deadline.within(Duration::from_secs(3));
/// assert!(cut < deadline);
/// assert_eq!(cut.within(Duration::from_secs(60)), cut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

/// A shared deadline that can be shortened while others read it.
#[derive(Debug)]
pub(crate) struct LiveDeadline {
    origin: Instant,
    nanos: AtomicU64,
}

// === impl Deadline ===

impl Deadline {
    /// Returns a deadline that passes after `timeout`.
    ///
    /// # Panics
    ///
    /// If the platform's clock cannot represent the instant.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self(now() + timeout)
    }

    /// Returns a deadline at an instant of tokio's clock.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Returns this deadline, or one that passes after `timeout` if that is sooner.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        now().checked_add(timeout).map_or(self, |cut| Self(self.0.min(cut)))
    }

    /// Returns the time until the deadline; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Returns the instant, for tokio's timers.
    #[must_use]
    pub fn instant(self) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0)
    }

    /// Waits until the deadline has passed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn passed(self) {
        tokio::time::sleep_until(self.instant()).await;
    }
}

// === impl LiveDeadline ===

impl LiveDeadline {
    pub(crate) fn new(origin: Instant, at: Instant) -> Self {
        Self { origin, nanos: AtomicU64::new(nanos_between(origin, at)) }
    }

    pub(crate) fn get(&self) -> Instant {
        // Relaxed: no other memory is published together with the instant.
        self.origin + Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    pub(crate) fn shorten(&self, to: Instant) {
        self.nanos.fetch_min(nanos_between(self.origin, to), Ordering::Relaxed);
    }
}

fn nanos_between(origin: Instant, at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, adieu_loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    // Invariant 2. Fails when `shorten` loads, compares and stores instead of `fetch_min`.
    #[test]
    fn loom_of_two_concurrent_changes_the_shorter_deadline_wins() {
        loom::model(|| {
            let origin = now();
            let at = move |secs| origin + Duration::from_secs(secs);
            let live = Arc::new(LiveDeadline::new(origin, at(30)));
            let other = thread::spawn({
                let live = Arc::clone(&live);
                move || live.shorten(at(5))
            });
            live.shorten(at(10));
            assert!(live.get() <= at(10), "later than it was set");
            other.join().unwrap();
            assert_eq!(live.get(), at(5));
        });
    }
}
