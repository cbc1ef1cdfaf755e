//! Retries: how often, within which budget, after which pauses.

mod budget;
pub(crate) mod delay;

pub(crate) use budget::Budget;

use crate::time::Instant;

/// How often a call is repeated after a failure.
///
/// Before each retry there is a pause. If the backend has named a pause, that one is used. Otherwise
/// the pause is random, up to a bound that doubles with each retry, from 50 ms (1 s if the backend
/// requested fewer calls) to 5 s. A call is not repeated if the pause would not end before its
/// deadline, or if the backend names a pause of more than a minute.
///
/// A call that the policy itself refuses is not repeated.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "retries do nothing until a policy has them"]
pub struct Retry {
    times: u32,
    budget: f64,
}

// === impl Retry ===

impl Retry {
    /// Allows at most this many retries of each call, with a budget of a tenth of the calls.
    pub fn times(times: u32) -> Self {
        Self { times, budget: 0.1 }
    }

    /// Sets the budget: how many retries there may be in ten seconds, as a share of the calls in that
    /// time. Ten retries are allowed in addition.
    pub fn budget(mut self, share: f64) -> Self {
        self.budget = share;
        self
    }

    pub(crate) fn most(&self) -> u32 {
        self.times
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=10).contains(&self.times) {
            return Err(format!("retry: {} times is not from 1 to 10", self.times));
        }
        if !(0.0..=1.0).contains(&self.budget) {
            return Err(format!("retry: a budget of {} is not from 0 to 1", self.budget));
        }
        Ok(())
    }

    pub(crate) fn build(&self, origin: Instant) -> Budget {
        Budget::new(origin, self.budget)
    }
}
