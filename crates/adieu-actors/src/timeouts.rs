//! Recommended timeouts for draining actors, by their kind of work.

use std::time::Duration;

/// Recommended timeouts for draining actors, by their kind of work.
///
/// An actor processes all messages that it has accepted before it stops, so allow for the largest
/// backlog. Messages that a killed actor has not processed become dead letters.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "it has no values; it only groups constants")]
pub enum Timeouts {}

impl Timeouts {
    /// Workers that hold no state, such as those of an HTTP server.
    pub const STATELESS: Duration = Duration::from_secs(5);
    /// Actors that write to a database.
    pub const DATABASE_WRITES: Duration = Duration::from_secs(15);
    /// Event-sourced actors, which may be in the middle of a snapshot.
    pub const EVENT_SOURCED: Duration = Duration::from_secs(30);
    /// A pool of worker threads that send each other messages.
    pub const WORKER_THREADS: Duration = Duration::from_secs(30);

    /// How long the stop hook of a killed actor may run.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// The time that the phase `actor-system-terminate` keeps for reporting.
    pub(crate) const SPARE: Duration = Duration::from_millis(250);

    /// How long killed actors may take to end after their phase was cut. The task of the phase is
    /// aborted a grace (at most 200 ms) after the cut, and must have reported by then.
    pub(crate) const GRACE_AFTER_CUT: Duration = Duration::from_millis(50);

    /// Divides the time that is left of a phase. Returns how long actors drain until they are killed, and
    /// how long it takes until killed actors must have ended.
    ///
    /// The stop hooks of killed actors get the grace, and the report gets [`SPARE`](Self::SPARE), but
    /// each an eighth of the time at most: after a hard stop there are seconds for accepted messages.
    pub(crate) fn within(left: Duration, grace: Duration) -> (Duration, Duration) {
        let end = left - Self::SPARE.min(left / 8);
        (end - grace.min(left / 8), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1803_a_drain_has_at_least_three_quarters_of_its_phase() {
        for millis in [0, 1, 40, 1_100, 2_600, 5_000, 30_000] {
            let left = Duration::from_millis(millis);
            let (timeout, end) = Timeouts::within(left, Timeouts::GRACE);
            assert!(timeout >= left / 4 * 3, "{left:?}: {timeout:?}");
            assert!(timeout <= end && end <= left, "{left:?}: {timeout:?}, {end:?}");
        }
        let (timeout, end) = Timeouts::within(Duration::from_secs(30), Timeouts::GRACE);
        assert_eq!((timeout.as_millis(), end.as_millis()), (28_750, 29_750));
    }
}
