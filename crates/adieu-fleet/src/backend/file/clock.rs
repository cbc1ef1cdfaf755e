//! Stores instants of the clock that all processes of a machine share.

use std::time::Duration;

use adieu_core::adapter::BootClock;

/// The machine's clock since boot.
#[derive(Debug, Default)]
pub(super) struct Clock(BootClock);

/// An instant, in the form in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) boot: String,
    pub(super) millis: u64,
}

// === impl Clock ===

impl Clock {
    /// Returns the identity of the boot. It is stored as a word, so it is not empty.
    fn boot(&self) -> &str {
        Some(self.0.boot()).filter(|boot| !boot.is_empty()).unwrap_or("-")
    }

    pub(super) fn after(&self, ttl: Duration) -> Stamp {
        // One millisecond more, because rounding down must not shorten the time.
        let millis = u64::try_from((self.0.now() + ttl).as_millis()).unwrap_or(u64::MAX);
        Stamp { boot: self.boot().to_owned(), millis: millis.saturating_add(1) }
    }

    /// Returns the time until an instant; `None` if it has passed. An instant of an earlier boot has
    /// passed, because the process that stored it no longer runs.
    pub(super) fn until(&self, stamp: &Stamp) -> Option<Duration> {
        if stamp.boot != self.boot() {
            return None;
        }
        let left = Duration::from_millis(stamp.millis).saturating_sub(self.0.now());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_of_an_earlier_boot_has_passed() {
        let clock = Clock::default();
        let stamp = clock.after(Duration::from_secs(60));
        assert!(clock.until(&stamp).is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!(clock.until(&Stamp { boot: "another".into(), ..stamp }), None);
        assert_eq!(clock.until(&Stamp { millis: 0, ..clock.after(Duration::ZERO) }), None);
    }
}
