//! The coarse clock of Linux: it is updated with each tick of the kernel, and costs a quarter.

use std::sync::LazyLock;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Duration, Instant};

/// The same moment as an `Instant`, which can only be computed from another one, and on the clock
/// that an `Instant` is of. The coarse clock shows the time at which that clock was updated last.
static ORIGIN: LazyLock<(Instant, Timespec)> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "this clock cannot be paused")]
    let instant = Instant::now();
    (instant, clock_gettime(ClockId::Monotonic))
});

#[inline]
pub(super) fn now() -> Instant {
    let (instant, origin) = *ORIGIN;
    let elapsed = clock_gettime(ClockId::MonotonicCoarse) - origin;
    instant + Duration::try_from(elapsed).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::COARSE;

    #[test]
    fn the_coarse_clock_is_never_early_and_a_little_late() {
        let mut last = now();
        let first = last;
        while last - first < 5 * COARSE {
            #[expect(clippy::disallowed_methods, reason = "the clock to compare with")]
            let before = Instant::now();
            let coarse = now();
            #[expect(clippy::disallowed_methods, reason = "the clock to compare with")]
            let after = Instant::now();
            assert!(coarse >= last && coarse <= after);
            assert!(before.saturating_duration_since(coarse) <= 2 * COARSE);
            last = coarse;
        }
    }
}
