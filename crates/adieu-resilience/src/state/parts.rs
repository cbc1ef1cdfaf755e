//! The parts of a policy for one key.

use std::sync::Arc;

use crate::breaker::{Change, Circuit};
use crate::bulkhead::Compartment;
use crate::journal::Journal;
use crate::rate::Limiter;
use crate::retry::Budget;
use crate::spec::Spec;
use crate::throttle::Throttling;
use crate::time::Instant;

pub(crate) struct Parts {
    pub(crate) rate: Option<Limiter>,
    pub(crate) bulkhead: Option<Arc<Compartment>>,
    pub(crate) breaker: Option<Circuit>,
    pub(crate) throttle: Option<Throttling>,
    pub(crate) budget: Option<Budget>,
}

// === impl Parts ===

impl Parts {
    pub(crate) fn new(spec: &Spec, origin: Instant, journal: Journal) -> Self {
        let Spec { within, rate, bulkhead, breaker, throttle, retry, timeout } = spec;
        let bulkhead = bulkhead.as_ref().map(|bulkhead| Arc::new(bulkhead.build()));
        let breaker = breaker.as_ref().map(|breaker| {
            let bulkhead = bulkhead.clone();
            breaker.build(origin, timeout.or(*within), move |change| {
                // After an outage all callers return at once, so the limit begins at its lowest.
                if let (Change::Opened { .. }, Some(bulkhead)) = (change, &bulkhead) {
                    bulkhead.reset();
                }
                journal.breaker_changed(change);
            })
        });
        Self {
            rate: rate.as_ref().map(|rate| rate.build(origin)),
            bulkhead,
            breaker,
            throttle: throttle.as_ref().map(|throttle| throttle.build(origin)),
            budget: retry.as_ref().map(|retry| retry.build(origin)),
        }
    }

    /// Whether new parts would behave in the same way.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.is_idle(now))
            && self.breaker.as_ref().is_none_or(|breaker| breaker.is_idle(now))
    }

    /// Whether the parts refuse calls that new ones would admit.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| !breaker.is_closed())
    }
}
