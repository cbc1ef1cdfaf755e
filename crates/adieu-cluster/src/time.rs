//! The only access to the clock. It is tokio's, which tests can pause.

pub(crate) use std::time::{Duration, Instant};

/// Returns the time on tokio's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits until then.
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(tokio::time::Instant::from_std(at)).await;
}
