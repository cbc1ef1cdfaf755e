//! An adaptive limit that follows the ratio of the usual latency to the current one.
//!
//! This is Netflix's Gradient2 with these changes:
//!
//! - The limit gets headroom only while latency is as usual. Otherwise it grows under mild overload.
//! - A timeout or a refusal halves the gradient.
//! - The usual latency is learnt only from calls below twice itself. Otherwise constant timeouts become
//!   usual.
//! - A higher latency is learnt only if the limit has not caused it: calls did not fill the limit, or the
//!   limit is at its lowest. Otherwise a server that is always overloaded doubles limit and latency every
//!   90 s: the limit adds latency, the latency becomes usual, and the limit grows again.
//! - The limit does not grow while less than half of it is used.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::sample::Sample;

/// Latency may be this much higher than usual without a reduction.
///
/// Under overload, the limit settles where latency is this much higher. With 1.1, the variation of the
/// latencies themselves keeps the limit below the capacity of a server (simulated with exponential
/// latencies: 48 % of the goodput; with 1.3: 98 %). With 1.5, the last percent of goodput costs a fifth of
/// latency.
const TOLERANCE: f64 = 1.3;
/// The weight of the newly computed limit in the smoothed one.
const SMOOTHING: f64 = 0.2;
/// By how much of itself the limit may grow at once, before smoothing; at least by one call.
const HEADROOM: f64 = 0.1;
/// How many windows the usual latency is an average of.
const USUAL_OVER: f64 = 600.0;
/// A window has at least this many calls and this much time.
const WINDOW_CALLS: u32 = 10;
const WINDOW: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    least: f64,
    most: f64,
    limit: f64,
    /// The usual latency, in seconds. `None` before the first window has ended.
    usual: Option<f64>,
    window: Window,
}

/// The calls since the limit was last computed.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Instant>,
    calls: u32,
    /// Sums over the answered calls, in seconds.
    answered: u32,
    latency: f64,
    most_inside: usize,
    has_drops: bool,
}

// === impl Gradient ===

impl Gradient {
    pub(crate) fn new(range: &RangeInclusive<u32>) -> Self {
        let (least, most) = (f64::from(*range.start()), f64::from(*range.end()));
        Self { least, most, limit: least, usual: None, window: Window::default() }
    }

    pub(crate) fn limit(&self) -> usize {
        // Within the range, which is made of `u32`s.
        self.limit as usize
    }

    /// Begins at the lowest limit again. The usual latency is kept.
    pub(crate) fn reset(&mut self) {
        self.limit = self.least;
        self.window = Window::default();
    }

    /// Learns from a call that ended while `inside` calls were in the bulkhead, itself included.
    pub(crate) fn learn(&mut self, now: Instant, sample: Sample, inside: usize) {
        let window = &mut self.window;
        let since = *window.since.get_or_insert(now);
        window.calls += 1;
        window.most_inside = window.most_inside.max(inside);
        match sample {
            Sample::Dropped => window.has_drops = true,
            Sample::Answered(latency) => {
                window.answered += 1;
                window.latency += latency.as_secs_f64();
            }
        }
        if window.calls >= WINDOW_CALLS && now.saturating_duration_since(since) >= WINDOW {
            let ended = std::mem::take(window);
            self.adapt(ended);
        }
    }

    fn adapt(&mut self, window: Window) {
        let Window { answered, latency, most_inside, has_drops, .. } = window;
        let current = (answered > 0).then(|| latency / f64::from(answered));
        let gradient = match (has_drops, current) {
            (true, _) => 0.5,
            (false, None) => 1.0,
            (false, Some(current)) => {
                let usual = *self.usual.get_or_insert(current);
                let is_full = most_inside >= self.limit();
                let is_caused_by_limit = current > usual && is_full && self.limit > self.least;
                if current < 2.0 * usual && !is_caused_by_limit {
                    self.usual = Some(usual + (current - usual) / USUAL_OVER);
                }
                // Load has fallen for good: without this it would take minutes to notice.
                if usual > 2.0 * current {
                    self.usual = Some(usual * 0.95);
                }
                if current > 0.0 { (TOLERANCE * usual / current).clamp(0.5, 1.0) } else { 1.0 }
            }
        };
        let headroom = if gradient >= 1.0 { (self.limit * HEADROOM).max(1.0) } else { 0.0 };
        let wanted = self.limit * gradient + headroom;
        let next = self.limit + (wanted - self.limit) * SMOOTHING;
        let is_used = most_inside as f64 >= self.limit / 2.0;
        if next < self.limit || is_used {
            self.limit = next.clamp(self.least, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Feeds windows of ten calls, 100 ms each, all alike; returns the limit after each.
    fn feed(gradient: &mut Gradient, sample: Sample, inside: usize, windows: usize) -> Vec<usize> {
        let start = crate::time::now();
        let window = |gradient: &mut Gradient, at: usize| {
            for call in 0..11 {
                gradient.learn(start + ms((at * 110 + call * 10) as u64), sample, inside);
            }
            gradient.limit()
        };
        (0..windows).map(|at| window(gradient, at)).collect()
    }

    fn grown() -> Gradient {
        let mut gradient = Gradient::new(&(4..=64));
        assert_eq!(feed(&mut gradient, Sample::Answered(ms(10)), 64, 300).last(), Some(&64));
        gradient
    }

    #[test]
    fn s729_the_limit_grows_from_the_lowest_to_the_highest_while_latency_is_as_usual() {
        let mut gradient = Gradient::new(&(4..=64));
        assert_eq!(gradient.limit(), 4);
        let limits = feed(&mut gradient, Sample::Answered(ms(10)), 64, 150);
        assert!(limits.is_sorted() && limits[149] == 64, "{limits:?}");
    }

    #[test]
    fn s730_the_limit_falls_while_latency_is_twice_the_usual() {
        let mut gradient = grown();
        let limits = feed(&mut gradient, Sample::Answered(ms(20)), 64, 40);
        assert!(limits.is_sorted_by(|a, b| a >= b) && limits[39] < 16, "{limits:?}");
    }

    // The original grows: `limit * 0.8 + queue` is more than the limit if that is small.
    #[test]
    fn s730_the_limit_does_not_grow_under_mild_overload() {
        let mut gradient = Gradient::new(&(4..=64));
        feed(&mut gradient, Sample::Answered(ms(10)), 64, 10);
        let limits = feed(&mut gradient, Sample::Answered(ms(19)), 64, 20);
        assert!(limits.is_sorted_by(|a, b| a >= b), "{limits:?}");
    }

    #[test]
    fn s731_timeouts_and_refusals_lower_the_limit_to_the_lowest_however_long_they_last() {
        let mut gradient = grown();
        let limits = feed(&mut gradient, Sample::Dropped, 64, 2_000);
        assert!(limits.is_sorted_by(|a, b| a >= b) && limits[1_999] == 4, "{limits:?}");
    }

    #[test]
    fn s731_latency_of_twice_the_usual_never_becomes_usual() {
        let mut gradient = grown();
        let limits = feed(&mut gradient, Sample::Answered(ms(40)), 64, 3_000);
        assert_eq!(limits[2_999], 4);
    }

    #[test]
    fn s732_the_limit_does_not_grow_while_less_than_half_of_it_is_used() {
        let mut gradient = Gradient::new(&(4..=64));
        assert_eq!(feed(&mut gradient, Sample::Answered(ms(10)), 1, 100)[99], 4);
        let limits = feed(&mut gradient, Sample::Answered(ms(10)), 5, 100);
        assert_eq!(limits[99], 10, "five are half of ten: {limits:?}");
    }

    // The backend works on `capacity` calls at a time; further ones wait inside of it.
    #[test]
    fn s1660_a_latency_that_the_limit_has_caused_is_learnt_at_the_lowest_limit_only() {
        let mut gradient = grown();
        // The backend is slower for good, by less than twice.
        let limits = feed(&mut gradient, Sample::Answered(ms(15)), 64, 2_000);
        assert!(limits.contains(&4), "{limits:?}");
        assert_eq!(limits[1_999], 64, "it was learnt at the lowest limit");
    }

    proptest! {
        #[test]
        fn s1660_under_lasting_overload_the_limit_settles_near_the_capacity(
            capacity in 1u32..100,
            work in 1u64..200,
            demand in 1.02f64..10.0,
            noise in 0.0f64..0.1,
            seed: u64,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut gradient = Gradient::new(&(1..=1_000));
            let (mut now, capacity) = (crate::time::now(), f64::from(capacity));
            let mut usually = Vec::new();
            // Ten minutes of windows.
            for window in 0..6_000 {
                let limit = gradient.limit() as f64;
                // Now and then there are fewer calls than the limit.
                let inside = if demand < 1.1 && random.u8(..4) == 0 { limit / 2.0 } else { limit };
                let latency = work as f64 / 1e3 * (inside / capacity).max(1.0);
                let latency = latency * (1.0 + noise * (2.0 * random.f64() - 1.0));
                for _ in 0..10 {
                    now += ms(10);
                    let sample = Sample::Answered(Duration::from_secs_f64(latency));
                    gradient.learn(now, sample, inside.ceil() as usize);
                }
                now += ms(10);
                if window > 3_000 {
                    usually.push(gradient.limit() as f64);
                }
            }
            let least = usually.iter().copied().fold(f64::INFINITY, f64::min);
            let most = usually.iter().copied().fold(0.0, f64::max);
            prop_assert!(most <= 2.0 * capacity + 2.0, "{} of {}", most, capacity);
            prop_assert!(least >= (0.9 * capacity).floor(), "{} of {}", least, capacity);
        }

        #[test]
        fn s728_the_gradient_limit_stays_in_its_range(
            least in 1u32..50,
            more in 0u32..200,
            samples in prop::collection::vec((0u64..50, prop::option::of(0u64..5_000), 0usize..300), 0..500),
        ) {
            let mut gradient = Gradient::new(&(least..=least + more));
            let mut now = crate::time::now();
            for (later, latency, inside) in samples {
                now += ms(later);
                let sample = latency.map_or(Sample::Dropped, |latency| Sample::Answered(ms(latency)));
                gradient.learn(now, sample, inside);
                prop_assert!((least as usize..=(least + more) as usize).contains(&gradient.limit()));
            }
        }
    }
}
