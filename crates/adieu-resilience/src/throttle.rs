//! Refuses calls in proportion to how many the backend refuses or fails.
//!
//! This is the client-side throttling of Google's SRE book. A breaker is either open or closed, so it
//! refuses too much while a backend is only partly overloaded; a throttle refuses the excess.

use std::time::Duration;

use crate::time::{Instant, LONGEST};
use crate::window::{Pair, Window};

/// Refuses calls in proportion to how many the backend has not accepted lately.
///
/// With the factor `K`, a call is refused with the probability
/// `(requests − K · accepted) / (requests + 1)`, so about `K` calls are let through for each call
/// that the backend accepts. A request counts from when it is made, so a backend that hangs is
/// detected before its calls have timed out.
///
/// A policy has either a throttle or a [`Breaker`](crate::Breaker).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a throttle does nothing until a policy has it"]
pub struct Throttle {
    factor: f64,
    over: Duration,
}

/// The throttle of one key of a policy.
pub(crate) struct Throttling {
    factor: f64,
    /// Requests, and how many of them were accepted.
    window: Window,
}

/// A request that was made and has not ended. One that is dropped does not count.
#[must_use = "a request that is dropped does not count"]
pub(crate) struct Request<'a> {
    of: &'a Throttling,
    made: Instant,
    is_settled: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Accepted,
    /// It failed, or the backend refused it.
    NotAccepted,
    /// Its caller dropped it, so nothing is known.
    Unknown,
}

// === impl Throttle ===

impl Throttle {
    /// Creates a throttle with the factor 2 over two minutes.
    pub fn new() -> Self {
        Self { factor: 2.0, over: Duration::from_secs(120) }
    }

    /// Sets how many calls are let through for each call that the backend accepts. With 1.1 the
    /// throttle refuses early. With 2 the backend gets up to twice as many calls as it accepts.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets how far back calls count. It should be longer than the longest call.
    pub fn over(mut self, over: Duration) -> Self {
        self.over = over;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1.0..=100.0).contains(&self.factor) {
            return Err(format!("throttle: factor {} is not from 1 to 100", self.factor));
        }
        if !(Duration::from_millis(100)..=LONGEST).contains(&self.over) {
            return Err(format!("throttle: {:?} is not from 100ms to a year", self.over));
        }
        Ok(())
    }

    pub(crate) fn build(&self, origin: Instant) -> Throttling {
        Throttling { factor: self.factor, window: Window::new(origin, self.over) }
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Throttling ===

impl Throttling {
    /// Counts a request, also if it is not let through. `random` is from zero to one.
    pub(crate) fn admit(&self, now: Instant, random: f64) -> Option<Request<'_>> {
        let Pair { all: requests, some: accepted } = self.window.sum(now, 0);
        self.window.add(now, 0, 1, 0);
        let excess = requests as f64 - self.factor * accepted as f64;
        let passes = random >= excess / (requests as f64 + 1.0);
        // Not `then_some`: a request that is dropped is taken back.
        passes.then(|| Request { of: self, made: now, is_settled: false })
    }
}

// === impl Request ===

impl Request<'_> {
    /// Records that the request has ended.
    pub(crate) fn settle(mut self, now: Instant, fate: RequestEnd) {
        match fate {
            RequestEnd::Accepted => self.of.window.add(now, 0, 0, 1),
            RequestEnd::NotAccepted => {}
            RequestEnd::Unknown => return,
        }
        self.is_settled = true;
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.of.window.add(self.made, 0, -1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Returns the share of `calls` that is let through while the backend accepts `accepted` of
    /// those.
    fn share_let_through(accepted: f64, calls: u32) -> f64 {
        let (start, mut random) = (crate::time::now(), fastrand::Rng::with_seed(7));
        let throttling = Throttle::new().build(start);
        let mut passed = 0;
        for call in 0..calls {
            let now = start + Duration::from_millis(u64::from(call));
            if let Some(request) = throttling.admit(now, random.f64()) {
                passed += 1;
                let fate = if random.f64() < accepted {
                    RequestEnd::Accepted
                } else {
                    RequestEnd::NotAccepted
                };
                request.settle(now, fate);
            }
        }
        f64::from(passed) / f64::from(calls)
    }

    #[test]
    fn s734_a_throttle_refuses_calls_beyond_twice_the_accepted_ones() {
        assert!(share_let_through(1.0, 20_000) > 0.999, "all is well");
        assert!(share_let_through(0.6, 20_000) > 0.98, "more than half is accepted");
        let overloaded = share_let_through(0.25, 20_000);
        // In balance: let through = 2 * 0.25 * let through + the requests that are always tried.
        assert!((0.02..0.2).contains(&overloaded), "{overloaded}");
        assert!(share_let_through(0.0, 20_000) < 0.01, "nothing is accepted");
    }

    #[test]
    fn s734_requests_count_when_they_are_made() {
        let now = crate::time::now();
        let throttling = Throttle::new().build(now);
        let made: Vec<_> = (0..99).map(|_| throttling.admit(now, 1.0).unwrap()).collect();
        assert!(throttling.admit(now, 0.98).is_none(), "none of 99 has been answered");
        assert!(throttling.admit(now, 0.991).is_some());
        drop(made);
    }

    #[test]
    fn s734_a_request_whose_caller_went_away_does_not_count() {
        let now = crate::time::now();
        let throttling = Throttle::new().build(now);
        for _ in 0..50 {
            let request = throttling.admit(now, 0.5).unwrap();
            if fastrand::bool() {
                request.settle(now + secs(1), RequestEnd::Unknown);
            }
        }
    }

    proptest! {
        // The model is a list of what happened when, which is scanned for each decision.
        #[test]
        fn s734_the_throttle_decides_by_the_formula_over_its_window(
            acts in prop::collection::vec((0u64..20, 0.0..1.0, 0u8..3, 0u64..5), 1..300),
        ) {
            let start = crate::time::now();
            let throttling = Throttle::new().build(start);
            let (mut at, mut requests, mut accepted) = (0, Vec::<u64>::new(), Vec::<u64>::new());
            for (later, random, fate, takes) in acts {
                at += later;
                let inside = |list: &[u64]| list.iter().filter(|then| *then / 12 + 9 >= at / 12).count() as f64;
                let (all, some) = (inside(&requests), inside(&accepted));
                let expected = random >= (all - 2.0 * some) / (all + 1.0);
                let request = throttling.admit(start + secs(at), random);
                prop_assert_eq!(request.is_some(), expected);
                requests.push(at);
                if let Some(request) = request {
                    let ended = at + takes;
                    at = ended;
                    let fate = [RequestEnd::Accepted, RequestEnd::NotAccepted, RequestEnd::Unknown][fate as usize];
                    request.settle(start + secs(ended), fate);
                    match fate {
                        RequestEnd::Accepted => accepted.push(ended),
                        RequestEnd::NotAccepted => {}
                        RequestEnd::Unknown => { requests.pop(); }
                    }
                }
            }
        }
    }
}
