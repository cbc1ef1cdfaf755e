//! The only access to the clock. It is tokio's, which tests can pause.

#[cfg(target_os = "linux")]
mod coarse;

pub(crate) use std::time::{Duration, Instant};

/// The longest time that a policy may name: a year.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How late [`roughly_now`] can be. Linux updates its coarse clock at least a hundred times a second.
pub(crate) const COARSE: Duration = Duration::from_millis(10);

/// Whether tokio's clock can be paused in this program: tokio was built with its feature `test-util`.
///
/// A crate cannot ask for the features of another one. But with that feature, `tokio::time` has a
/// function `pause`, and a name that a block imports hides the same name outside of the block.
#[cfg(target_os = "linux")]
const CAN_PAUSE: bool = {
    use tokio::time::*;
    let _: fn() -> Instant = Instant::now; // Otherwise the import may be unused.
    size_of_output(pause) != ABSENT
};

/// The size of the output if tokio has no `pause`.
#[cfg(target_os = "linux")]
const ABSENT: usize = size_of_output(pause);

/// Stands for the function of tokio, if that does not exist.
#[cfg(target_os = "linux")]
fn pause() -> bool {
    false
}

#[cfg(target_os = "linux")]
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
    #[cfg(target_os = "linux")]
    if !CAN_PAUSE {
        return coarse::now();
    }
    now()
}

/// Nanoseconds from `origin` to `at`; zero if `at` is earlier.
pub(crate) fn nanos_since(origin: Instant, at: Instant) -> u64 {
    nanos(at.saturating_duration_since(origin))
}

/// A duration in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
