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

    /// How long the stop hooks of killed actors may run at least, if the phase is long enough.
    const MIN_HOOKS: Duration = Duration::from_millis(125);

    /// How long killed actors may take to end after their phase was cut. The task of the phase is
    /// aborted a grace (at most 200 ms) after the cut, and must have reported by then.
    pub(crate) const GRACE_AFTER_CUT: Duration = Duration::from_millis(50);

    /// Divides the time that is left of a phase. Returns how long actors drain until they are killed, and
    /// how long it takes until killed actors must have ended.
    ///
    /// The stop hooks of killed actors get the grace, but an eighth of the time at most, because after a
    /// hard stop there are seconds for accepted messages. On a busy machine, less than
    /// [`MIN_HOOKS`](Self::MIN_HOOKS) is too short for killed actors to count their messages. A phase that
    /// is shorter than a second keeps half of its time.
    pub(crate) fn within(left: Duration, grace: Duration) -> (Duration, Duration) {
        let spare = Self::SPARE.min(left / 5);
        let hooks = grace.min(left / 8).max(Self::MIN_HOOKS.min(grace)).min(left * 3 / 10);
        let end = left - spare;
        (end - hooks, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1803_a_drain_has_two_thirds_of_its_phase_or_half_of_a_short_one() {
        for millis in [0, 1, 40, 400, 1_000, 1_100, 1_250, 2_600, 5_000, 30_000] {
            let left = Duration::from_millis(millis);
            let (timeout, end) = Timeouts::within(left, Timeouts::GRACE);
            let least = if millis < 1_000 { left / 2 } else { left * 2 / 3 };
            assert!(timeout >= least, "{left:?}: {timeout:?}");
            assert!(timeout <= end && end <= left, "{left:?}: {timeout:?}, {end:?}");
        }
        let (timeout, end) = Timeouts::within(Duration::from_secs(30), Timeouts::GRACE);
        assert_eq!((timeout.as_millis(), end.as_millis()), (28_750, 29_750));
    }
}
