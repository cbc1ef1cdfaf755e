//! The metrics of the policies of a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use adieu_core::adapter::{Family, Metrics};

use crate::link::Link;
use crate::state::State;
use crate::status::{BreakerState, PolicyStatus};

/// Adds the metrics of all policies, each metric for all policies before the next.
pub(super) fn render(policies: &[Arc<State>], metrics: &mut Metrics) {
    let all: Vec<_> = policies.iter().map(|policy| (policy.status(), policy)).collect();
    let help = "1 for the state of the breaker of calls without a key: closed, open or half-open.";
    let mut breakers = metrics.gauge("adieu_resilience_breaker", help);
    for (status, _) in &all {
        let Some(breaker) = status.breaker else { continue };
        let current = match breaker {
            BreakerState::Closed => "closed",
            BreakerState::Open { .. } => "open",
            BreakerState::HalfOpen => "half-open",
        };
        for state in ["closed", "open", "half-open"] {
            let labels = [("policy", &*status.policy), ("state", state)];
            breakers.sample(&labels, u8::from(state == current));
        }
    }
    let each = |mut family: Family<'_>, value: fn(&PolicyStatus) -> Option<usize>| {
        for (status, _) in &all {
            if let Some(value) = value(status) {
                family.sample(&[("policy", &status.policy)], value);
            }
        }
    };
    let help = "1 while the policy is forced open.";
    each(metrics.gauge("adieu_resilience_forced_open", help), |it| {
        Some(usize::from(it.forced.is_some()))
    });
    let help = "Keys that have a state of their own.";
    each(metrics.gauge("adieu_resilience_keys", help), |it| Some(it.keys));
    let help = "Keys whose breaker is not closed.";
    each(metrics.gauge("adieu_resilience_open_keys", help), |it| Some(it.open_keys));
    let help = "Calls without a key that are inside the bulkhead.";
    each(metrics.gauge("adieu_resilience_bulkhead_inside", help), |it| Some(it.bulkhead?.inside));
    let help = "Calls without a key that wait for the bulkhead.";
    each(metrics.gauge("adieu_resilience_bulkhead_waiting", help), |it| Some(it.bulkhead?.waiting));
    let help = "How many calls without a key may be inside the bulkhead.";
    each(metrics.gauge("adieu_resilience_bulkhead_limit", help), |it| Some(it.bulkhead?.limit));

    let help = "Attempts that the policy refused, by code.";
    let mut refused = metrics.counter("adieu_resilience_refused_total", help);
    for (status, policy) in &all {
        for (code, count) in policy.counters.refused() {
            refused.sample(&[("policy", &*status.policy), ("code", code.as_str())], count);
        }
    }
    let help = "Attempts that repeated an earlier one.";
    let mut retries = metrics.counter("adieu_resilience_retries_total", help);
    for (status, policy) in &all {
        retries.sample(&[("policy", &status.policy)], policy.counters.retries());
    }
    let help = "How often a breaker opened: by the calls of this process, or by the fleet.";
    let mut opened = metrics.counter("adieu_resilience_opened_total", help);
    for (status, policy) in &all {
        for (by, count) in policy.counters.opened() {
            opened.sample(&[("policy", &*status.policy), ("by", by)], count);
        }
    }
    render_stores(policies, metrics);
}

/// Adds the metrics of the stores, by the service that shares its policies.
fn render_stores(policies: &[Arc<State>], metrics: &mut Metrics) {
    let links: BTreeMap<_, _> =
        policies.iter().filter_map(|policy| policy.link()).map(|it| (&*it.service, it)).collect();
    if links.is_empty() {
        return;
    }
    let each = |mut family: Family<'_>, value: fn(&Link) -> u64| {
        for (service, link) in &links {
            family.sample(&[("service", service)], value(link));
        }
    };
    let help = "1 while the store answers, 0 while it is away and the process decides alone.";
    each(metrics.gauge("adieu_resilience_store", help), |link| u64::from(!link.is_away()));
    let help = "Replicas of the fleet that were last seen, this one included.";
    each(metrics.gauge("adieu_resilience_replicas", help), |link| link.replicas().into());
    let help = "How often the store went away.";
    each(metrics.counter("adieu_resilience_store_away_total", help), Link::times_away);
    let help = "Calls that a rate limit decided without the store.";
    each(metrics.counter("adieu_resilience_decided_alone_total", help), Link::decided_alone);
}
