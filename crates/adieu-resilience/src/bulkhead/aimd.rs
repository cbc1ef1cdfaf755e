//! An adaptive limit that grows by one while calls succeed in time, and falls by a tenth otherwise.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::sample::Sample;

const DECREASE: f64 = 0.9;

#[derive(Clone, Debug)]
pub(crate) struct Aimd {
    least: f64,
    most: f64,
    limit: f64,
    /// A call that takes longer counts as dropped.
    threshold: Duration,
    decreased: Option<Instant>,
}

// === impl Aimd ===

impl Aimd {
    pub(crate) fn new(range: &RangeInclusive<u32>, threshold: Duration) -> Self {
        let (least, most) = (f64::from(*range.start()), f64::from(*range.end()));
        Self { least, most, limit: least, threshold, decreased: None }
    }

    pub(crate) fn limit(&self) -> usize {
        // Within the range, which is made of `u32`s.
        self.limit as usize
    }

    /// Begins at the lowest limit again.
    pub(crate) fn reset(&mut self) {
        self.limit = self.least;
    }

    /// Learns from a call that ended while `inside` calls were in the bulkhead, itself included.
    pub(crate) fn learn(&mut self, now: Instant, sample: Sample, inside: usize) {
        let is_slow = match sample {
            Sample::Dropped => true,
            Sample::Answered(latency) => latency > self.threshold,
        };
        let next = if is_slow {
            // Calls that were admitted under the old limit show nothing about the new one.
            let was = self.decreased.replace(now);
            if was.is_some_and(|was| now.saturating_duration_since(was) < self.threshold) {
                self.decreased = was;
                return;
            }
            self.limit * DECREASE
        } else if inside as f64 >= self.limit / 2.0 {
            // One more after as many calls as the limit.
            self.limit + 1.0 / self.limit
        } else {
            return;
        };
        self.limit = next.clamp(self.least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn grown() -> (Aimd, Instant) {
        let (mut aimd, now) = (Aimd::new(&(4..=64), ms(100)), crate::time::now());
        for _ in 0..3_000 {
            aimd.learn(now, Sample::Answered(ms(100)), 64);
        }
        (aimd, now)
    }

    #[test]
    fn s733_aimd_adds_one_after_as_many_calls_as_the_limit() {
        let (mut aimd, now) = (Aimd::new(&(4..=64), ms(100)), crate::time::now());
        for _ in 0..5 {
            aimd.learn(now, Sample::Answered(ms(100)), 4);
        }
        assert_eq!(aimd.limit(), 5);
        for _ in 0..1_000 {
            aimd.learn(now, Sample::Answered(ms(1)), 2);
        }
        assert_eq!(aimd.limit(), 5, "less than half is used");
        assert_eq!(grown().0.limit(), 64);
    }

    #[test]
    fn s733_aimd_takes_a_tenth_away_once_in_each_threshold() {
        let (mut aimd, now) = grown();
        for _ in 0..50 {
            aimd.learn(now, Sample::Answered(ms(101)), 64);
        }
        assert_eq!(aimd.limit(), 57);
        aimd.learn(now + ms(99), Sample::Dropped, 64);
        assert_eq!(aimd.limit(), 57);
        aimd.learn(now + ms(100), Sample::Dropped, 64);
        assert_eq!(aimd.limit(), 51);
    }

    proptest! {
        #[test]
        fn s728_the_aimd_limit_stays_in_its_range(
            least in 1u32..50,
            more in 0u32..200,
            samples in prop::collection::vec((0u64..50, prop::option::of(0u64..500), 0usize..300), 0..500),
        ) {
            let mut aimd = Aimd::new(&(least..=least + more), ms(100));
            let mut now = crate::time::now();
            for (later, latency, inside) in samples {
                now += ms(later);
                let sample = latency.map_or(Sample::Dropped, |latency| Sample::Answered(ms(latency)));
                aimd.learn(now, sample, inside);
                prop_assert!((least as usize..=(least + more) as usize).contains(&aimd.limit()));
            }
        }
    }
}
