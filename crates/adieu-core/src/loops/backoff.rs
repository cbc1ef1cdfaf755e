//! The pause before a loop is restarted.

use std::time::Duration;

use crate::plan::LONGEST;

/// How long a loop pauses after a crash before it is restarted.
///
/// The pause is random, between half and all of a duration that doubles with each consecutive crash,
/// up to a limit. It is random so that replicas do not restart at the same time. When a loop has run
/// for a minute, the next crash counts as the first again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a backoff does nothing until a loop has it"]
pub struct Backoff {
    first: Duration,
    most: Duration,
    well_after: Duration,
}

/// The shortest pause, so that a loop that crashes at once does not keep a core busy.
const LEAST: Duration = Duration::from_millis(1);

// === impl Backoff ===

impl Backoff {
    /// Creates pauses of up to `first` after the first crash, and never longer than `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        let first = first.clamp(LEAST, LONGEST);
        Self { first, most: most.clamp(first, LONGEST), ..Self::default() }
    }

    /// Sets how long a loop must have run for a crash to count as the first. One minute by default.
    pub fn well_after(mut self, span: Duration) -> Self {
        self.well_after = span;
        self
    }

    /// Returns the pause after this many consecutive crashes. `random` is from zero to one.
    pub(super) fn pause(&self, crashes: u32, random: f64) -> Duration {
        let doublings = crashes.saturating_sub(1).min(31);
        let span = self.first.saturating_mul(1 << doublings).min(self.most);
        (span / 2 + (span / 2).mul_f64(random)).max(LEAST)
    }

    /// Returns the number of consecutive crashes, including one after the loop has run for `ran`.
    pub(super) fn count(&self, crashes: u32, ran: Duration) -> u32 {
        if ran >= self.well_after { 1 } else { crashes.saturating_add(1) }
    }
}

impl Default for Backoff {
    /// From 500 ms to 30 s.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            most: Duration::from_secs(30),
            well_after: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_pause_doubles_up_to_the_limit() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let pauses = |random| [1, 2, 3, 4, 5, 40].map(|n| backoff.pause(n, random).as_millis());
        assert_eq!(pauses(1.0), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(pauses(0.0), [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    }

    #[test]
    fn after_a_long_run_a_crash_counts_as_the_first() {
        let backoff = Backoff::default().well_after(Duration::from_secs(10));
        assert_eq!(backoff.count(3, Duration::from_secs(9)), 4);
        assert_eq!(backoff.count(3, Duration::from_secs(10)), 1);
    }

    proptest! {
        #[test]
        fn the_pause_is_within_its_bounds(
            first: u64,
            most: u64,
            crashes: u32,
            random in 0.0..=1.0,
        ) {
            // Up to two years: also beyond the maximum.
            let (first, most) = (Duration::from_nanos(first >> 8), Duration::from_nanos(most >> 8));
            let backoff = Backoff::new(first, most);
            let pause = backoff.pause(crashes, random);
            let most = most.max(first).clamp(LEAST, LONGEST);
            let first = first.min(LONGEST);
            prop_assert!(pause >= LEAST && pause <= most);
            prop_assert!(pause >= (first / 2).min(most / 2));
            prop_assert!(pause <= backoff.pause(crashes.saturating_add(1), 1.0));
        }
    }
}
