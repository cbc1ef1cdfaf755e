//! The only access to the clock. It is tokio's, which tests can pause.

pub(crate) use std::time::{Duration, Instant};

/// The longest time that a policy may name: a year.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the time on tokio's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Nanoseconds from `origin` to `at`; zero if `at` is earlier.
pub(crate) fn nanos_since(origin: Instant, at: Instant) -> u64 {
    nanos(at.saturating_duration_since(origin))
}

/// A duration in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
