//! The state of a policy: its parts for each key, and whether it was opened by hand.

mod keys;
mod parts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use adieu_core::{Short, WeakShutdown};

pub(crate) use keys::Found;
use keys::Keys;
pub(crate) use parts::Parts;

use crate::breaker::Circuit;
use crate::counters::Counters;
use crate::journal::Journal;
use crate::link::{ForceFailure, Link};
use crate::spec::Spec;
use crate::status::PolicyStatus;
use crate::striped::lock;
use crate::time::{Instant, nanos_since, now};

/// The longest time for which a policy can be opened by hand.
pub(crate) const LONGEST_FORCE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct State {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    pub(crate) shutdown: WeakShutdown,
    origin: Instant,
    /// Until when every call is refused, in nanoseconds since `origin`; zero if never.
    forced_until: AtomicU64,
    /// The same, for the whole fleet.
    fleet_forced_until: AtomicU64,
    /// The requester who forced the policy open in the whole fleet.
    fleet_forced_by: Mutex<Option<Arc<str>>>,
    /// Set if the policy is shared.
    link: OnceLock<Arc<Link>>,
    pub(crate) counters: Arc<Counters>,
    /// For calls without a key.
    whole: Parts,
    keys: Keys,
}

// === impl State ===

impl State {
    pub(crate) fn new(name: Arc<str>, spec: Spec, shutdown: WeakShutdown) -> Self {
        let origin = now();
        let counters = Arc::<Counters>::default();
        let journal = Journal {
            policy: Arc::clone(&name),
            key: None,
            shutdown: shutdown.clone(),
            counters: Arc::clone(&counters),
        };
        let whole = Parts::new(&spec, origin, journal);
        let keys = Keys::default();
        Self {
            name,
            spec,
            shutdown,
            origin,
            forced_until: AtomicU64::new(0),
            fleet_forced_until: AtomicU64::new(0),
            fleet_forced_by: Mutex::default(),
            link: OnceLock::new(),
            counters,
            whole,
            keys,
        }
    }

    /// The parts for a key, which are made on first use.
    pub(crate) fn parts(&self, key: Option<&str>) -> Found<'_> {
        let Some(key) = key else { return Found::Whole(&self.whole) };
        let new = |key: &str| {
            let journal = Journal { key: Some(key.into()), ..self.journal() };
            let parts = Parts::new(&self.spec, self.origin, journal);
            if let Some(link) = self.link.get() {
                parts.share(link);
            }
            parts
        };
        Found::Keyed(self.keys.get(key, now(), new))
    }

    pub(crate) fn status(&self) -> PolicyStatus {
        let now = now();
        let (keys, open_keys) = self.keys.count();
        PolicyStatus {
            policy: Arc::clone(&self.name),
            forced: self.forced(now),
            forced_by: self.forced_by().filter(|_| self.forced(now).is_some()),
            breaker: self.whole.breaker.as_ref().map(|breaker| breaker.state(now)),
            bulkhead: self.whole.bulkhead.as_ref().map(|bulkhead| bulkhead.load()),
            keys,
            open_keys,
        }
    }

    /// Shares the policy. Returns whether it was not shared before.
    pub(crate) fn share(&self, link: &Arc<Link>) -> bool {
        let is_new = self.link.set(Arc::clone(link)).is_ok();
        // Parts that are made from now on find the link themselves.
        if is_new {
            self.whole.share(link);
            self.keys.all().iter().for_each(|parts| parts.share(link));
        }
        is_new
    }

    #[inline]
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.link.get()
    }

    /// The breaker of calls without a key, and its name in the fleet.
    pub(crate) fn circuit(&self) -> Option<(Arc<str>, Arc<Circuit>)> {
        named_circuit(&self.whole)
    }

    /// The breakers of all keys, and their names in the fleet.
    pub(crate) fn keyed_circuits(&self) -> Vec<(Arc<str>, Arc<Circuit>)> {
        let keyed = self.keys.all();
        keyed.iter().filter_map(|parts| named_circuit(parts)).collect()
    }

    /// The remaining time for which the policy was opened by hand.
    #[inline]
    pub(crate) fn forced(&self, now: Instant) -> Option<Duration> {
        let own = self.forced_until.load(Ordering::Acquire);
        let until = own.max(self.fleet_forced_until.load(Ordering::Acquire));
        // Almost always, and then there is no need to convert the time.
        if until == 0 {
            return None;
        }
        let left = until.checked_sub(nanos_since(self.origin, now))?;
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Refuses every call of this process for this long, a day at most.
    pub(crate) fn force_open(&self, time: Duration) {
        let time = time.min(LONGEST_FORCE);
        self.force(Some(now() + time));
        let policy = Arc::clone(&self.name);
        self.journal().log(move || {
            let time = Short(time);
            tracing::warn!(%policy, %time, "policy forced open");
        });
    }

    /// Ends [`State::force_open`].
    pub(crate) fn release(&self) {
        self.force(None);
        let policy = Arc::clone(&self.name);
        self.journal().log(move || tracing::info!(%policy, "policy released"));
    }

    /// Forces the policy open in the whole fleet, if it is shared, for a day at most. Zero releases it.
    pub(crate) async fn force_everywhere(
        &self,
        time: Duration,
        by: &str,
    ) -> Result<(), ForceFailure> {
        let time = time.min(LONGEST_FORCE);
        if time.is_zero() {
            self.release();
        }
        match self.link() {
            Some(link) => link.force(&self.name, time, by).await?,
            None if time.is_zero() => {}
            None => self.force_open(time),
        }
        Ok(())
    }

    /// Refuses every call until then, or `None` to end that.
    fn force(&self, until: Option<Instant>) {
        let until = until.map_or(0, |until| nanos_since(self.origin, until));
        self.forced_until.store(until, Ordering::Release);
    }

    /// The fleet refuses every call until then, or `None` to end that. Returns whether that is new.
    pub(crate) fn force_fleet(&self, until: Option<Instant>, by: &str) -> bool {
        let mut forced_by = lock(&self.fleet_forced_by);
        let is_new = forced_by.is_some() != until.is_some();
        *forced_by = until.map(|_| by.into());
        let until = until.map_or(0, |until| nanos_since(self.origin, until));
        self.fleet_forced_until.store(until, Ordering::Release);
        is_new
    }

    /// The requester who forced the policy open in the whole fleet.
    pub(crate) fn forced_by(&self) -> Option<Arc<str>> {
        lock(&self.fleet_forced_by).clone()
    }

    pub(crate) fn journal(&self) -> Journal {
        let (policy, shutdown) = (Arc::clone(&self.name), self.shutdown.clone());
        Journal { policy, key: None, shutdown, counters: Arc::clone(&self.counters) }
    }
}

fn named_circuit(parts: &Parts) -> Option<(Arc<str>, Arc<Circuit>)> {
    parts.breaker.as_ref().map(|breaker| (Arc::clone(&parts.id), Arc::clone(breaker)))
}
