//! The state of a policy: its parts for each key, and whether it was opened by hand.

mod keys;
mod parts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu_core::WeakShutdown;

pub(crate) use keys::Found;
use keys::Keys;
pub(crate) use parts::Parts;

use crate::journal::Journal;
use crate::spec::Spec;
use crate::status::PolicyStatus;
use crate::time::{Instant, nanos_since, now};

pub(crate) struct State {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    pub(crate) shutdown: WeakShutdown,
    origin: Instant,
    /// Until when every call is refused, in nanoseconds since `origin`; zero if never.
    forced_until: AtomicU64,
    /// For calls without a key.
    whole: Parts,
    keys: Keys,
}

// === impl State ===

impl State {
    pub(crate) fn new(name: Arc<str>, spec: Spec, shutdown: WeakShutdown) -> Self {
        let origin = now();
        let journal = Journal { policy: Arc::clone(&name), key: None, shutdown: shutdown.clone() };
        let whole = Parts::new(&spec, origin, journal);
        let keys = Keys::default();
        Self { name, spec, shutdown, origin, forced_until: AtomicU64::new(0), whole, keys }
    }

    /// The parts for a key, which are made on first use.
    pub(crate) fn parts(&self, key: Option<&str>) -> Found<'_> {
        let Some(key) = key else { return Found::Whole(&self.whole) };
        let new = |key: &str| {
            let (policy, shutdown) = (Arc::clone(&self.name), self.shutdown.clone());
            let journal = Journal { policy, key: Some(key.into()), shutdown };
            Parts::new(&self.spec, self.origin, journal)
        };
        Found::Keyed(self.keys.get(key, now(), new))
    }

    pub(crate) fn status(&self) -> PolicyStatus {
        let now = now();
        let (keys, open_keys) = self.keys.count();
        PolicyStatus {
            policy: Arc::clone(&self.name),
            forced: self.forced(now),
            breaker: self.whole.breaker.as_ref().map(|breaker| breaker.state(now)),
            bulkhead: self.whole.bulkhead.as_ref().map(|bulkhead| bulkhead.load()),
            keys,
            open_keys,
        }
    }

    /// What is left of the time for which the policy was opened by hand.
    pub(crate) fn forced(&self, now: Instant) -> Option<Duration> {
        let until = self.forced_until.load(Ordering::Acquire);
        let left = until.checked_sub(nanos_since(self.origin, now))?;
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Refuses every call until then, or `None` to end that.
    pub(crate) fn force(&self, until: Option<Instant>) {
        let until = until.map_or(0, |until| nanos_since(self.origin, until));
        self.forced_until.store(until, Ordering::Release);
    }

    pub(crate) fn journal(&self) -> Journal {
        let (policy, shutdown) = (Arc::clone(&self.name), self.shutdown.clone());
        Journal { policy, key: None, shutdown }
    }
}
