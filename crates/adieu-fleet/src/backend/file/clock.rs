//! A clock that all processes of a machine share and that cannot be set.

use std::time::Duration;

/// The machine's clock since boot.
#[derive(Debug)]
pub(super) struct Clock {
    /// Identifies the boot.
    boot: String,
}

/// An instant, in the form in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) boot: String,
    pub(super) millis: u64,
}

// === impl Clock ===

impl Clock {
    pub(super) fn new() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        Self { boot: if boot.is_empty() { "-".to_owned() } else { boot.to_owned() } }
    }

    pub(super) fn after(&self, ttl: Duration) -> Stamp {
        // One millisecond more, because rounding down must not shorten the time.
        let millis = u64::try_from((now() + ttl).as_millis()).unwrap_or(u64::MAX);
        Stamp { boot: self.boot.clone(), millis: millis.saturating_add(1) }
    }

    /// Returns the time until an instant; `None` if it has passed. An instant of an earlier boot has
    /// passed, because the process that stored it no longer runs.
    pub(super) fn until(&self, stamp: &Stamp) -> Option<Duration> {
        if stamp.boot != self.boot {
            return None;
        }
        let left = Duration::from_millis(stamp.millis).saturating_sub(now());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(target_os = "linux")]
fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    // Also counts while the machine is suspended.
    let time = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
#[expect(
    clippy::disallowed_methods,
    reason = "other systems have no better clock that processes share"
)]
fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_of_an_earlier_boot_has_passed() {
        let clock = Clock::new();
        let stamp = clock.after(Duration::from_secs(60));
        assert!(clock.until(&stamp).is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!(clock.until(&Stamp { boot: "another".into(), ..stamp }), None);
        assert_eq!(clock.until(&Stamp { millis: 0, ..clock.after(Duration::ZERO) }), None);
    }
}
