//! The only access to the clock. It is tokio's, which tests can pause.

pub(crate) use std::time::{Duration, Instant};

/// The longest time that a policy may name: a year.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How late [`roughly_now`] can be. Linux updates its coarse clock at least a hundred times a second.
pub(crate) const COARSE: Duration = Duration::from_millis(10);

/// Whether tokio's clock can be paused in this program: tokio was built with its feature `test-util`.
///
/// A crate cannot ask for the features of another one. But with that feature, `tokio::time` has a
/// function `pause`, and a name that a block imports hides the same name outside of the block.
const CAN_PAUSE: bool = {
    use tokio::time::*;
    let _: fn() -> Instant = Instant::now; // Otherwise the import may be unused.
    size_of_output(pause) != ABSENT
};

/// The size of the output if tokio has no `pause`.
const ABSENT: usize = size_of_output(pause);

/// Stands for the function of tokio, if that does not exist.
fn pause() -> bool {
    false
}

const fn size_of_output<T>(_: fn() -> T) -> usize {
    size_of::<T>()
}

/// Returns the time on tokio's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time on tokio's clock, at most [`COARSE`] late. Reading it costs a quarter of [`now`].
#[inline]
pub(crate) fn roughly_now() -> Instant {
    if CAN_PAUSE { now() } else { coarse::now() }
}

/// Nanoseconds from `origin` to `at`; zero if `at` is earlier.
pub(crate) fn nanos_since(origin: Instant, at: Instant) -> u64 {
    nanos(at.saturating_duration_since(origin))
}

/// A duration in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(target_os = "linux")]
mod coarse {
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
}

#[cfg(not(target_os = "linux"))]
mod coarse {
    pub(super) use super::now;
}
