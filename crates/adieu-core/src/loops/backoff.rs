//! How long to pause after a crash.

use std::time::Duration;

use crate::plan::LONGEST;

/// How long a loop pauses after a crash before it is started again: longer after each, up to a
/// limit, and never exactly as long as its replicas.
///
/// The pause is between half and all of a span that doubles with each crash in a row. A loop that
/// has run well for a while begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a backoff does nothing until a loop has it"]
pub struct Backoff {
    first: Duration,
    most: Duration,
    well_after: Duration,
}

/// A loop that crashes at once must not keep a core busy.
const LEAST: Duration = Duration::from_millis(1);

// === impl Backoff ===

impl Backoff {
    /// Pauses for up to `first` after the first crash in a row, and never for longer than `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        let first = first.clamp(LEAST, LONGEST);
        Self { first, most: most.clamp(first, LONGEST), ..Self::default() }
    }

    /// After running for so long, a crash is the first in a row again. One minute by default.
    pub fn well_after(mut self, span: Duration) -> Self {
        self.well_after = span;
        self
    }

    /// The pause after so many crashes in a row; `random` is from zero to one.
    pub(super) fn pause(&self, crashes: u32, random: f64) -> Duration {
        let doublings = crashes.saturating_sub(1).min(31);
        let span = self.first.saturating_mul(1 << doublings).min(self.most);
        (span / 2 + (span / 2).mul_f64(random)).max(LEAST)
    }

    /// How many crashes there have been in a row, with this one, which came after running for
    /// `ran`.
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
    fn it_doubles_from_the_first_to_the_most() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let pauses = |random| [1, 2, 3, 4, 5, 40].map(|n| backoff.pause(n, random).as_millis());
        assert_eq!(pauses(1.0), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(pauses(0.0), [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    }

    #[test]
    fn after_running_well_it_begins_anew() {
        let backoff = Backoff::default().well_after(Duration::from_secs(10));
        assert_eq!(backoff.count(3, Duration::from_secs(9)), 4);
        assert_eq!(backoff.count(3, Duration::from_secs(10)), 1);
    }

    proptest! {
        #[test]
        fn it_keeps_to_its_bounds(
            first: u64,
            most: u64,
            crashes: u32,
            random in 0.0..=1.0,
        ) {
            // Up to two years, for good measure.
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
