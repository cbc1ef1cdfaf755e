//! Reads a policy from its table.

use std::time::Duration;

use adieu_core::ConfigError;
use adieu_core::adapter::Block;

use crate::breaker::Breaker;
use crate::bulkhead::Bulkhead;
use crate::policy::{Policy, PolicyBuilder};
use crate::rate::{Rate, WithoutStore};
use crate::retry::Retry;
use crate::throttle::Throttle;

pub(super) fn policy(name: &str, keys: &mut Block<'_>) -> Result<PolicyBuilder, ConfigError> {
    let policy = Policy::new(name);
    let policy = set(policy, keys.duration("within")?, PolicyBuilder::within);
    let policy = set(policy, keys.table("rate", rate)?, PolicyBuilder::rate);
    let policy = set(policy, keys.table("bulkhead", bulkhead)?, PolicyBuilder::bulkhead);
    let policy = set(policy, keys.table("breaker", breaker)?, PolicyBuilder::breaker);
    let policy = set(policy, keys.table("throttle", throttle)?, PolicyBuilder::throttle);
    let policy = set(policy, keys.table("retry", retry)?, PolicyBuilder::retry);
    Ok(set(policy, keys.duration("timeout")?, PolicyBuilder::timeout))
}

fn rate(keys: &mut Block<'_>) -> Result<Rate, ConfigError> {
    let permits = keys.count("permits")?;
    let per = keys.duration("per")?.unwrap_or(Duration::from_secs(1));
    let (burst, without_store) = (keys.count("burst")?, keys.text("without-store")?);
    let permits = needed(keys, "permits", permits)?;
    let without_store = match without_store.as_deref() {
        None => None,
        Some("share") => Some(WithoutStore::Share),
        Some("open") => Some(WithoutStore::Open),
        Some("closed") => Some(WithoutStore::Closed),
        Some(other) => {
            let problem = format!("expected share, open or closed, found {other}");
            return Err(keys.invalid("without-store", problem));
        }
    };
    let rate = set(Rate::per(permits, per), burst, Rate::burst);
    Ok(set(rate, without_store, Rate::without_store))
}

fn bulkhead(keys: &mut Block<'_>) -> Result<Bulkhead, ConfigError> {
    let (limit, adaptive) = (keys.count("limit")?, keys.text("adaptive")?);
    let (least, most) = (keys.count("least")?, keys.count("most")?);
    let (threshold, queue) = (keys.duration("threshold")?, keys.count("queue")?);
    keys.refuse_unknown()?;
    let missing = |name: &str| keys.invalid(name, "is missing");
    let range = || {
        Ok::<_, ConfigError>(
            least.ok_or_else(|| missing("least"))?..=most.ok_or_else(|| missing("most"))?,
        )
    };
    let bulkhead = match (limit, adaptive.as_deref(), threshold) {
        (Some(limit), None, None) if least.or(most).is_none() => Bulkhead::of(limit),
        (None, Some("gradient"), None) => Bulkhead::adaptive(range()?),
        (None, Some("aimd"), Some(threshold)) => Bulkhead::aimd(range()?, threshold),
        (None, Some("aimd"), None) => return Err(missing("threshold")),
        (None, Some("gradient"), Some(_)) => {
            return Err(keys.invalid("threshold", "is for adaptive = \"aimd\""));
        }
        (None, Some(other), _) => {
            let problem = format!("expected gradient or aimd, found {other}");
            return Err(keys.invalid("adaptive", problem));
        }
        (Some(_), _, _) => {
            let problem = "a fixed limit has no adaptive, least, most and threshold: keep one kind";
            return Err(keys.invalid("limit", problem));
        }
        (None, None, _) => {
            let problem = "is missing, or adaptive with least and most in its place";
            return Err(keys.invalid("limit", problem));
        }
    };
    Ok(set(bulkhead, queue, Bulkhead::queue))
}

fn breaker(keys: &mut Block<'_>) -> Result<Breaker, ConfigError> {
    let ratio = keys.number("ratio")?;
    let breaker = Breaker::at(ratio.unwrap_or_default());
    let breaker = set(breaker, keys.count("calls")?, Breaker::of);
    let breaker = set(breaker, keys.duration("over")?, Breaker::over);
    let breaker = set(breaker, keys.duration("opens-for")?, Breaker::opens_for);
    let breaker = set(breaker, keys.duration("at-most")?, Breaker::at_most);
    let breaker = set(breaker, keys.count("probes")?, Breaker::probes);
    let breaker = set(breaker, keys.count("closes-after")?, Breaker::closes_after);
    let breaker = set(breaker, keys.duration("slow")?, Breaker::slow);
    let breaker = set(breaker, keys.count("witnesses")?, Breaker::witnesses);
    needed(keys, "ratio", ratio).map(|_| breaker)
}

fn throttle(keys: &mut Block<'_>) -> Result<Throttle, ConfigError> {
    let throttle = set(Throttle::new(), keys.number("factor")?, Throttle::factor);
    Ok(set(throttle, keys.duration("over")?, Throttle::over))
}

fn retry(keys: &mut Block<'_>) -> Result<Retry, ConfigError> {
    let (times, budget) = (keys.count("times")?, keys.number("budget")?);
    let times = needed(keys, "times", times)?;
    Ok(set(Retry::times(times), budget, Retry::budget))
}

/// Returns the value of a key that must be there. Must be called after all keys have been read.
fn needed<T>(keys: &Block<'_>, name: &str, value: Option<T>) -> Result<T, ConfigError> {
    keys.refuse_unknown()?;
    value.ok_or_else(|| keys.invalid(name, "is missing"))
}

fn set<S, T>(spec: S, value: Option<T>, setter: impl FnOnce(S, T) -> S) -> S {
    match value {
        Some(value) => setter(spec, value),
        None => spec,
    }
}
