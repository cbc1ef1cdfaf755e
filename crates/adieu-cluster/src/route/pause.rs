//! The pauses before a sender tries again: 10 ms, twice as long each time, and at most 1 s.

use crate::time::Duration;

pub(super) const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the pause before an ask is repeated that was repeated `repeats` times before.
pub(super) fn after(repeats: u32) -> Duration {
    FIRST.saturating_mul(1_u32.checked_shl(repeats).unwrap_or(u32::MAX)).min(LONGEST)
}

/// Returns the pause that follows this one.
pub(super) fn next(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(LONGEST)
}
