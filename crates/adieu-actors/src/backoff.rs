//! How long to wait before the state of a node is checked again.

use std::time::Duration;

use tokio::time::Instant;

/// The longest pause between two checks.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(25);

/// Returns the pause before the next check of a wait that began at `began`.
///
/// Pauses grow with the elapsed time, so that they stay a small part of it.
pub(crate) fn pause_after(began: Instant) -> Duration {
    (began.elapsed() / 16).clamp(Duration::from_millis(1), MAX_PAUSE)
}
