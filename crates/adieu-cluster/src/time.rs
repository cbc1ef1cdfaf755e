//! The only access to the clock. It is tokio's, which tests can pause.

pub(crate) use std::time::{Duration, Instant};

/// Longer than any deadline.
pub(crate) use adieu_core::adapter::LONGEST_TIME as LONGEST;

/// Returns the time on tokio's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the end of a time that begins now and lasts for at most a year.
pub(crate) fn deadline(within: Duration) -> Instant {
    now() + within.min(LONGEST)
}

/// Waits until then.
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(tokio::time::Instant::from_std(at)).await;
}
