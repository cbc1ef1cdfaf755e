//! A clock that all processes of a machine share, and that setting the date does not change.

use std::time::Duration;

/// The time since the machine was started. On systems other than Linux it is the time of day.
#[derive(Debug)]
pub struct BootClock {
    boot: String,
}

// === impl BootClock ===

impl BootClock {
    /// Reads the identity of the boot.
    #[must_use]
    pub fn new() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned() }
    }

    /// Returns the identity of the boot from which the time counts. Empty if the system has none.
    #[must_use]
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Returns the time since the boot, including the time in which the machine was suspended.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn now(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Returns the time of day.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "processes share no better clock there")]
    #[must_use]
    pub fn now(&self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }
}

impl Default for BootClock {
    fn default() -> Self {
        Self::new()
    }
}
