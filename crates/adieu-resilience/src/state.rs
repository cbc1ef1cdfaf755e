//! The state of a policy: its parts for each key, and whether it was opened by hand.

mod forced;
mod keys;
mod parts;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adieu_core::{Short, WeakShutdown};

pub(crate) use forced::ForceChange;
use forced::ForcedHere;
pub(crate) use keys::Found;
use keys::Keys;
pub(crate) use parts::Parts;

use crate::breaker::Circuit;
use crate::counters::Counters;
use crate::journal::Journal;
use crate::link::{ForceFailure, Link};
use crate::spec::Spec;
use crate::status::PolicyStatus;
use crate::store::Forced;
use crate::time::{Instant, nanos_since, now};

/// A force that ends sooner is not reported to a store that may have lost it.
const SHORTEST_REPORTED_FORCE: Duration = Duration::from_secs(1);
/// The longest time for which a policy can be opened by hand.
pub(crate) const LONGEST_FORCE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct State {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    pub(crate) needs_exact_time: bool,
    pub(crate) shutdown: WeakShutdown,
    origin: Instant,
    /// Opened by hand in this process.
    forced: ForcedHere,
    /// Opened by hand in the whole fleet.
    fleet_forced: ForcedHere,
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
            needs_exact_time: spec.needs_exact_time(),
            spec,
            shutdown,
            origin,
            forced: ForcedHere::default(),
            fleet_forced: ForcedHere::default(),
            link: OnceLock::new(),
            counters,
            whole,
            keys,
        }
    }

    /// Returns the parts for a key, which are made on first use.
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
            forced_by: self.forced_by(now),
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
            self.keys.collect(|parts| {
                parts.share(link);
                None::<()>
            });
        }
        is_new
    }

    #[inline]
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.link.get()
    }

    /// Returns the breaker of calls without a key, and its name in the fleet.
    pub(crate) fn circuit(&self) -> Option<(Arc<str>, Arc<Circuit>)> {
        named_circuit(&self.whole)
    }

    /// Returns the breakers of all keys, and their names in the fleet.
    pub(crate) fn keyed_circuits(&self) -> Vec<(Arc<str>, Arc<Circuit>)> {
        self.keys.collect(named_circuit)
    }

    /// All breakers, and their names in the fleet.
    pub(crate) fn circuits(&self) -> Vec<(Arc<str>, Arc<Circuit>)> {
        self.keyed_circuits().into_iter().chain(self.circuit()).collect()
    }

    /// Returns the remaining time for which the policy was opened by hand.
    #[inline]
    pub(crate) fn forced(&self, now: Instant) -> Option<Duration> {
        let until = self.forced.until().max(self.fleet_forced.until());
        // Almost always, and then there is no need to convert the time.
        if until == 0 {
            return None;
        }
        let left = until.checked_sub(nanos_since(self.origin, now))?;
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Refuses every call of this process for this long, a day at most.
    pub(crate) fn force_open(&self, time: Duration, by: Option<&str>) {
        let (now, time) = (now(), time.min(LONGEST_FORCE));
        self.forced.set(self.nanos(now), self.nanos(now + time), by);
        let (policy, by) = (Arc::clone(&self.name), by.map(str::to_owned));
        self.journal().log(move || {
            let time = Short(time);
            tracing::warn!(%policy, by, %time, "policy forced open");
        });
    }

    /// Ends [`State::force_open`].
    pub(crate) fn release(&self) {
        if self.forced.set(self.nanos(now()), 0, None).is_some() {
            let policy = Arc::clone(&self.name);
            self.journal().log(move || tracing::info!(%policy, "policy released"));
        }
    }

    /// Forces the policy open in the whole fleet, if it is shared, for a day at most. Zero releases it.
    pub(crate) async fn force_everywhere(
        &self,
        time: Duration,
        by: &str,
    ) -> Result<(), ForceFailure> {
        let time = time.min(LONGEST_FORCE);
        // First the fleet: if that fails, nothing has changed.
        match self.link() {
            Some(link) => link.force(&self.name, time, by).await?,
            None if time.is_zero() => {}
            None => self.force_open(time, Some(by)),
        }
        if time.is_zero() {
            self.release();
        }
        Ok(())
    }

    /// Lets the fleet refuse every call until then, or ends that with `None`. Returns the change, if any.
    pub(crate) fn force_fleet(&self, until: Option<Instant>, by: &str) -> Option<ForceChange> {
        let until = until.map_or(0, |until| self.nanos(until));
        self.fleet_forced.set(self.nanos(now()), until, Some(by))
    }

    /// Returns for how long the fleet has forced the policy open, and by whom, if that is long enough to
    /// report it.
    pub(crate) fn fleet_force(&self, now: Instant) -> Option<Forced> {
        let left = self.fleet_forced.until().saturating_sub(self.nanos(now));
        let left = Duration::from_nanos(left);
        let by = self.fleet_forced.by().as_deref().unwrap_or_default().to_owned();
        (left >= SHORTEST_REPORTED_FORCE).then_some(Forced { left, by })
    }

    /// Returns the name of the requester that forced the policy open, if it is known.
    fn forced_by(&self, now: Instant) -> Option<Arc<str>> {
        self.forced(now)?;
        let longest = if self.fleet_forced.until() >= self.forced.until() {
            &self.fleet_forced
        } else {
            &self.forced
        };
        longest.by()
    }

    fn nanos(&self, at: Instant) -> u64 {
        nanos_since(self.origin, at)
    }

    pub(crate) fn journal(&self) -> Journal {
        let (policy, shutdown) = (Arc::clone(&self.name), self.shutdown.clone());
        Journal { policy, key: None, shutdown, counters: Arc::clone(&self.counters) }
    }
}

fn named_circuit(parts: &Parts) -> Option<(Arc<str>, Arc<Circuit>)> {
    parts.breaker.as_ref().map(|breaker| (Arc::clone(&parts.id), Arc::clone(breaker)))
}
