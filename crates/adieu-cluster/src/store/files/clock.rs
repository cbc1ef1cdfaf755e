//! A clock that all processes of a machine share, and that setting the date does not change.

use std::time::Duration;

/// The machine's clock since it was started.
#[derive(Debug)]
pub(super) struct Clock {
    boot: String,
}

// === impl Clock ===

impl Clock {
    pub(super) fn new() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned() }
    }

    /// Names the start of the machine that the time counts from.
    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    #[cfg(target_os = "linux")]
    #[expect(clippy::unused_self, reason = "the time belongs to the clock")]
    pub(super) fn now(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        // Goes on while the machine is suspended.
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "processes share no better clock there")]
    pub(super) fn now(&self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }
}
