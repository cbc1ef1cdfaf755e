//! The parts of a policy, and the combinations that contradict themselves.

use std::time::Duration;

use adieu_core::Short;

use crate::breaker::Breaker;
use crate::bulkhead::Bulkhead;
use crate::rate::Rate;
use crate::retry::Retry;
use crate::throttle::Throttle;
use crate::time::LONGEST;

/// The parts of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub(crate) within: Option<Duration>,
    pub(crate) rate: Option<Rate>,
    pub(crate) bulkhead: Option<Bulkhead>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout: Option<Duration>,
}

// === impl Spec ===

impl Spec {
    /// Returns whether a part of the policy needs exact times. A breaker, a throttle and a budget only
    /// count calls in buckets of time.
    pub(crate) fn needs_exact_time(&self) -> bool {
        let Self { within, rate, bulkhead, breaker, throttle: _, retry: _, timeout } = self;
        within.is_some()
            || timeout.is_some()
            || rate.is_some()
            || bulkhead.is_some()
            || breaker.as_ref().is_some_and(Breaker::needs_exact_time)
    }

    /// Returns the first contradiction.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { within, rate, bulkhead, breaker, throttle, retry, timeout } = self;
        for (name, time) in [("within", within), ("timeout", timeout)] {
            if let Some(time) = time
                && (time.is_zero() || *time > LONGEST)
            {
                return Err(format!("{name} of {time:?} is not from 1ns to a year"));
            }
        }
        rate.as_ref().map_or(Ok(()), Rate::check)?;
        bulkhead.as_ref().map_or(Ok(()), Bulkhead::check)?;
        breaker.as_ref().map_or(Ok(()), Breaker::check)?;
        throttle.as_ref().map_or(Ok(()), Throttle::check)?;
        retry.as_ref().map_or(Ok(()), Retry::check)?;
        if breaker.is_some() && throttle.is_some() {
            return Err("a breaker and a throttle decide the same: keep one of them".into());
        }
        let slow = breaker.as_ref().and_then(Breaker::slow_after);
        if let (Some(slow), Some(longest)) = (slow, timeout.or(*within))
            && slow > longest
        {
            let (slow, longest) = (Short(slow), Short(longest));
            return Err(format!(
                "breaker: no call takes longer than slow, {slow}: an attempt ends after {longest}"
            ));
        }
        if let (Some(within), Some(timeout)) = (within, timeout) {
            let (within_text, timeout_text) = (Short(*within), Short(*timeout));
            if timeout > within {
                return Err(format!(
                    "the timeout of an attempt, {timeout_text}, is longer than all attempts may \
                     take, {within_text}"
                ));
            }
            if retry.is_some() && timeout == within {
                return Err(format!(
                    "retries do not fit: one attempt may take {timeout_text}, and that is all the \
                     time there is"
                ));
            }
        }
        Ok(())
    }
}
