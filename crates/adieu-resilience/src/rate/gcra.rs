//! The generic cell rate algorithm: a rate limit whose whole state is one time.
//!
//! The state is the *theoretical arrival time*: when the limit will have forgotten all that was
//! admitted. Each permit moves it on by one interval. A permit is free if that leaves the state no
//! further ahead of now than `burst` intervals. So in any time T at most T / interval + burst permits
//! are granted, and a state in the past means the same as none.

/// The arithmetic of a limit. Times are nanoseconds since an origin of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    /// From one permit to the next.
    interval: u64,
    /// How far the state may be ahead of now.
    tolerance: u64,
}

/// No permit is free for this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) u64);

// === impl Gcra ===

impl Gcra {
    /// A limit of `permits` in `per` nanoseconds with this burst. None of them may be zero.
    pub(crate) fn new(permits: u32, per: u64, burst: u32) -> Self {
        // Rounded up: the limit may be slower than declared by a nanosecond a permit, never faster.
        let interval = per.div_ceil(u64::from(permits)).max(1);
        Self { interval, tolerance: interval.saturating_mul(u64::from(burst)) }
    }

    /// Takes one permit; returns the next state.
    #[inline]
    pub(crate) fn take(&self, state: u64, now: u64) -> Result<u64, Wait> {
        let next = state.max(now).saturating_add(self.interval);
        let limit = now.saturating_add(self.tolerance);
        if next <= limit { Ok(next) } else { Err(Wait(next - limit)) }
    }

    /// Whether the state still limits anything.
    pub(crate) fn is_idle(state: u64, now: u64) -> bool {
        state <= now
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;
    use governor::{Quota, RateLimiter};
    use proptest::prelude::*;

    use super::*;

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
