//! The parts of a policy for one key.

use std::sync::Arc;

use crate::breaker::{Change, Circuit};
use crate::bulkhead::Compartment;
use crate::journal::Journal;
use crate::link::Link;
use crate::rate::Limiter;
use crate::retry::Budget;
use crate::spec::Spec;
use crate::throttle::Throttling;
use crate::time::Instant;

/// How many bytes of a key are stored as they are.
const LONGEST_KEY: usize = 100;

pub(crate) struct Parts {
    /// The name of the policy and the key, under which the fleet stores the breaker.
    pub(crate) id: Arc<str>,
    pub(crate) rate: Option<Limiter>,
    pub(crate) bulkhead: Option<Arc<Compartment>>,
    pub(crate) breaker: Option<Arc<Circuit>>,
    pub(crate) throttle: Option<Throttling>,
    pub(crate) budget: Option<Budget>,
}

// === impl Parts ===

impl Parts {
    pub(crate) fn new(spec: &Spec, origin: Instant, journal: Journal) -> Self {
        let Spec { within, rate, bulkhead, breaker, throttle, retry, timeout } = spec;
        let id = match &journal.key {
            Some(key) => format!("{}/{}", journal.policy, shortened(key)).into(),
            None => Arc::clone(&journal.policy),
        };
        let bulkhead = bulkhead.as_ref().map(|bulkhead| Arc::new(bulkhead.build()));
        let breaker = breaker.as_ref().map(|breaker| {
            let bulkhead = bulkhead.clone();
            Arc::new(breaker.build(origin, timeout.or(*within), move |change| {
                // After an outage all callers return at once, so the limit begins at its lowest.
                let has_opened =
                    matches!(change, Change::Opened { .. } | Change::FleetOpened { .. });
                if let Some(bulkhead) = bulkhead.as_ref().filter(|_| has_opened) {
                    bulkhead.reset();
                }
                journal.breaker_changed(change);
            }))
        });
        Self {
            id,
            rate: rate.as_ref().map(|rate| rate.build(origin)),
            bulkhead,
            breaker,
            throttle: throttle.as_ref().map(|throttle| throttle.build(origin)),
            budget: retry.as_ref().map(|retry| retry.build(origin)),
        }
    }

    /// Shares the breaker. It begins with the state of the fleet's breaker.
    pub(super) fn share(&self, link: &Arc<Link>) {
        if let Some(breaker) = &self.breaker {
            breaker.share(Arc::clone(link) as _);
            link.register(&self.id, breaker);
        }
    }

    /// Returns whether new parts would behave in the same way.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.is_idle(now))
            && self.breaker.as_ref().is_none_or(|breaker| breaker.is_idle(now))
    }

    /// Returns whether the parts refuse calls that new ones would admit.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| !breaker.is_closed())
    }
}

/// A key as part of a name in the store. The name of a long key is its hash.
fn shortened(key: &str) -> String {
    if key.len() <= LONGEST_KEY {
        return key.to_owned();
    }
    format!("sha1-{}", sha1_smol::Sha1::from(key).digest())
}
