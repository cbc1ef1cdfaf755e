//! The generic cell rate algorithm: a rate limit whose whole state is one time.
//!
//! The state is the *theoretical arrival time*: when all admitted calls stop counting. Each permit
//! moves it on by one interval. A permit is free if that leaves the state no further ahead of now
//! than `burst` intervals. So in any time T at most T / interval + burst permits are granted, and a
//! state in the past means the same as none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::{Instant, nanos_since};

/// The arithmetic of a limit. Times are nanoseconds since an origin of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    /// From one permit to the next.
    interval: u64,
    /// The time by which the state may be ahead of now.
    tolerance: u64,
    /// How many permits are granted at once after a time without any.
    burst: u32,
}

/// No permit is free for this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) u64);

/// The state of a limit that several processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// The theoretical arrival time.
    pub(crate) time: u64,
    /// The tolerance of the limit that wrote it: replicas of two versions may have different ones.
    pub(crate) tolerance: u64,
}

/// The permits that were taken of a shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) granted: u32,
    /// How long until one more permit is free.
    pub(crate) wait: Wait,
    /// The next state; `None` if it limits nothing.
    pub(crate) state: Option<Shared>,
}

/// The state of a limit in this process.
pub(crate) struct LocalState {
    origin: Instant,
    time: AtomicU64,
}

// === impl LocalState ===

impl LocalState {
    pub(crate) fn new(origin: Instant) -> Self {
        Self { origin, time: AtomicU64::new(0) }
    }

    /// Replaces the state by what `decide` returns for the state and the time.
    #[inline]
    pub(crate) fn update(
        &self,
        now: Instant,
        decide: impl Fn(u64, u64) -> Result<u64, Wait>,
    ) -> Result<(), Duration> {
        let now = nanos_since(self.origin, now);
        let mut state = self.time.load(Ordering::Relaxed);
        loop {
            let next = decide(state, now);
            let next = next.map_err(|Wait(nanos)| Duration::from_nanos(nanos))?;
            // Relaxed: the state is complete in itself; no other memory depends on it.
            let swapped =
                self.time.compare_exchange_weak(state, next, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(()),
                Err(seen) => state = seen,
            }
        }
    }

    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        Gcra::is_idle(self.time.load(Ordering::Relaxed), nanos_since(self.origin, now))
    }
}

// === impl Shared ===

impl Shared {
    /// Returns how far the state is ahead of now. Never further than a grant can have made it: if
    /// it is, the clock was set back.
    fn ahead(self, now: u64) -> u64 {
        self.time.saturating_sub(now).min(self.tolerance)
    }
}

// === impl Gcra ===

impl Gcra {
    /// A limit of `permits` in `per` nanoseconds with this burst. None of them may be zero.
    pub(crate) fn new(permits: u32, per: u64, burst: u32) -> Self {
        // Rounded up: the limit may be slower than declared by a nanosecond a permit, never faster.
        let interval = per.div_ceil(u64::from(permits)).max(1);
        Self { interval, tolerance: interval.saturating_mul(u64::from(burst)), burst }
    }

    /// Takes one permit; returns the next state.
    #[inline]
    pub(crate) fn take(&self, state: u64, now: u64) -> Result<u64, Wait> {
        let next = state.max(now).saturating_add(self.interval);
        let limit = now.saturating_add(self.tolerance);
        if next <= limit { Ok(next) } else { Err(Wait(next - limit)) }
    }

    /// Takes as many permits as are free, at most `wanted`. For a state that several processes share.
    pub(crate) fn take_up_to(&self, state: Option<Shared>, now: u64, wanted: u32) -> Taken {
        let Self { interval, tolerance, .. } = *self;
        let known = state.map_or(0, |state| state.ahead(now));
        let free = tolerance.saturating_sub(known) / interval;
        let granted = wanted.min(u32::try_from(free).unwrap_or(u32::MAX));
        let ahead = known + interval * u64::from(granted);
        let wait = (ahead + interval).saturating_sub(tolerance);
        let state = match (granted, state) {
            // Written back, so that a state of a clock that was set back does not refuse for ever.
            (0, Some(Shared { tolerance, .. })) => Shared { time: now + known, tolerance },
            (_, _) => Shared { time: now + ahead, tolerance },
        };
        Taken { granted, wait: Wait(wait), state: (state.time > now).then_some(state) }
    }

    /// Counts permits that were granted elsewhere; returns the next state. It is never so far ahead
    /// that no permit would be free after one interval.
    pub(crate) fn count(&self, state: u64, now: u64, permits: u32) -> u64 {
        let ahead = self.interval.saturating_mul(permits.into());
        let next = state.max(now).saturating_add(ahead);
        next.min(now.saturating_add(self.tolerance))
    }

    /// Returns the share of one of this many replicas. Its burst is at least one.
    pub(crate) fn share_of(&self, replicas: u32) -> Self {
        if replicas <= 1 {
            return *self;
        }
        let interval = self.interval.saturating_mul(u64::from(replicas));
        let burst = (self.burst / replicas).max(1);
        Self { interval, tolerance: interval.saturating_mul(u64::from(burst)), burst }
    }

    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    /// Returns the interval and the tolerance, which are sent to a store with a request.
    #[cfg(feature = "redis")]
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.interval, self.tolerance)
    }

    /// Returns whether the state still limits anything.
    pub(crate) fn is_idle(state: u64, now: u64) -> bool {
        state <= now
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use governor::clock::FakeRelativeClock;
    use governor::{Quota, RateLimiter};
    use proptest::prelude::*;

    use super::*;

    /// Replicas with an old and a new limit request a permit each millisecond, for ten seconds. Returns
    /// how many permits those with the new one get in a second.
    fn granted_beside(old: Gcra, new: Gcra) -> u32 {
        let (mut state, mut granted) = (None, 0);
        for millis in 0..10_000 {
            for limit in [old, new] {
                let taken = limit.take_up_to(state, millis * 1_000_000, 1);
                state = taken.state;
                granted += if limit == new { taken.granted } else { 0 };
            }
        }
        granted / 10
    }

    #[test]
    fn s1789_of_two_limits_the_one_whose_burst_takes_longer_gets_the_permits() {
        let limit = |permits, burst| Gcra::new(permits, 1_000_000_000, burst);
        let old = limit(500, 50);
        assert_eq!(granted_beside(old, limit(200, 5)), 0);
        let longer = limit(200, 25);
        assert!((195..=205).contains(&granted_beside(old, longer)));
        assert!(granted_beside(longer, old) < 5, "then the old one gets nothing but its burst");
    }

    proptest! {
        #[test]
        fn s716_it_admits_exactly_what_governor_admits(
            interval in 1u64..2_000_000,
            burst in 1u32..20,
            pauses in prop::collection::vec(0u64..4_000_000, 1..300),
        ) {
            let ours = Gcra::new(1, interval, burst);
            let quota = Quota::with_period(Duration::from_nanos(interval))
                .unwrap()
                .allow_burst(NonZeroU32::new(burst).unwrap());
            let clock = FakeRelativeClock::default();
            let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
            let (mut state, mut now) = (0, 0);
            for pause in pauses {
                now += pause;
                clock.advance(Duration::from_nanos(pause));
                let taken = ours.take(state, now);
                prop_assert_eq!(taken.is_ok(), theirs.check().is_ok(), "at {}", now);
                state = taken.unwrap_or(state);
            }
        }

        #[test]
        fn s716_in_no_time_are_more_admitted_than_rate_and_burst_allow(
            permits in 1u32..5_000,
            per in 1_000u64..10_000_000_000,
            burst in 1u32..100,
            pauses in prop::collection::vec(0u64..100_000_000, 1..200),
        ) {
            let limit = Gcra::new(permits, per, burst);
            let (mut state, mut now) = (0, 0);
            let mut admitted: Vec<u64> = Vec::new();
            for pause in pauses {
                now += pause;
                while let Ok(next) = limit.take(state, now) {
                    state = next;
                    admitted.push(now);
                    // A limit that never refuses must fail, not hang.
                    prop_assert!(admitted.len() < 5_000_000);
                    if admitted.len() > 20_000 { return Ok(()); }
                }
                for (first, from) in admitted.iter().enumerate().rev().take(500) {
                    let allowed = f64::from(permits) * (now - from) as f64 / per as f64
                        + f64::from(burst);
                    prop_assert!((admitted.len() - first) as f64 <= allowed + 1e-6);
                }
            }
        }

        // Slices of a shared limit are bounded as single permits are.
        #[test]
        fn shared_permits_are_bounded_by_rate_and_burst_and_none_is_lost(
            interval in 1u64..1_000_000,
            burst in 1u32..50,
            asks in prop::collection::vec((0u64..20_000_000, 1u32..40), 1..200),
        ) {
            let limit = Gcra::new(1, interval, burst);
            let (mut state, mut now) = (None, 1);
            let mut single = 0;
            for (pause, wanted) in asks {
                now += pause;
                let taken = limit.take_up_to(state, now, wanted);
                // One by one, as many are free.
                let mut one_by_one = 0;
                while one_by_one < wanted && let Ok(next) = limit.take(single, now) {
                    single = next;
                    one_by_one += 1;
                }
                prop_assert_eq!(taken.granted, one_by_one);
                prop_assert_eq!(taken.state.map_or(0, |state| state.time), if single > now { single } else { 0 });
                if taken.granted < wanted {
                    let Wait(wait) = taken.wait;
                    prop_assert!(limit.take_up_to(taken.state, now + wait, 1).granted == 1);
                    prop_assert!(wait == 0 || limit.take_up_to(taken.state, now + wait - 1, 1).granted == 0);
                }
                state = taken.state;
            }
        }

        #[test]
        fn s717_after_the_time_that_a_refusal_names_a_permit_is_free(
            permits in 1u32..5_000,
            per in 1_000u64..10_000_000_000,
            burst in 1u32..100,
            pauses in prop::collection::vec(0u64..10_000_000, 1..100),
        ) {
            let limit = Gcra::new(permits, per, burst);
            let (mut state, mut now) = (0, 0);
            for pause in pauses {
                now += pause;
                for _ in 0..200 {
                    match limit.take(state, now) {
                        Ok(next) => state = next,
                        Err(Wait(wait)) => {
                            prop_assert!(limit.take(state, now + wait).is_ok());
                            prop_assert!(limit.take(state, now + wait - 1).is_err());
                            break;
                        }
                    }
                }
            }
        }
    }
}
