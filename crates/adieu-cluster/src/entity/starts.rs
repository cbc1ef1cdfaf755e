//! How many entities run on this node, and how fast they start. Entities that cannot start yet wait
//! here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use adieu_core::adapter::lock;
use tokio::sync::Notify;

use crate::time::{Duration, Instant};

/// How many entities may wait to be started.
const WAITING: usize = 100_000;

/// The limits on the entities of one node, and the entities that wait because of them.
pub(crate) struct Starts {
    limit: usize,
    per_second: u32,
    inner: Mutex<Inner>,
    /// Something waits, or an entity has ended.
    changed: Notify,
}

/// A shard whose entities can be started.
pub(super) trait Startable: Send + Sync {
    /// Starts an entity that waits. Returns whether there was one.
    fn start_waiting(self: Arc<Self>, id: &str) -> bool;
}

type Waiting = (Arc<dyn Startable>, Arc<str>);

struct Inner {
    running: usize,
    /// In billionths of a start, so that the rate is exact over any time.
    tokens: u64,
    refilled: Option<Instant>,
    waiting: VecDeque<Waiting>,
    /// Entities that failed, by when they start again.
    paused: BTreeMap<(Instant, u64), Waiting>,
    sequence: u64,
}

/// The next action of the keeper of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Wait until this instant, or until the limits or the waiting entities change.
    Wait(Option<Instant>),
    /// Let this many idle entities end, because the limit is reached.
    Evict(usize),
}

const ONE: u64 = 1_000_000_000;

// === impl Starts ===

impl Starts {
    pub(crate) fn new(limit: usize, per_second: u32) -> Self {
        let inner = Inner {
            running: 0,
            tokens: u64::from(per_second) * ONE,
            refilled: None,
            waiting: VecDeque::new(),
            paused: BTreeMap::new(),
            sequence: 0,
        };
        Self { limit, per_second, inner: Mutex::new(inner), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Returns why no more entities can wait, if so.
    pub(super) fn refusal(&self) -> Option<String> {
        let full = || format!("{WAITING} entities of this node wait to be started");
        (self.lock().waiting.len() >= WAITING).then(full)
    }

    /// Returns whether an entity may start now, and counts it.
    pub(super) fn permit(&self, now: Instant) -> bool {
        let mut inner = self.lock();
        // Waiting entities come first.
        inner.waiting.is_empty() && inner.take(self, now)
    }

    /// Keeps an entity that may not start now.
    pub(super) fn wait(&self, shard: Arc<dyn Startable>, id: Arc<str>) {
        self.lock().waiting.push_back((shard, id));
        self.changed.notify_one();
    }

    /// Keeps an entity that failed.
    pub(super) fn pause(&self, shard: Arc<dyn Startable>, id: Arc<str>, until: Instant) {
        let mut inner = self.lock();
        inner.sequence += 1;
        let key = (until, inner.sequence);
        inner.paused.insert(key, (shard, id));
        self.changed.notify_one();
    }

    /// Counts an entity that has ended, or has not started.
    pub(super) fn ended(&self) {
        let mut inner = self.lock();
        inner.running -= 1;
        if !inner.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    /// Waits until something changes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Starts the entities that may start now.
    pub(crate) fn start_due(&self, now: Instant) -> Due {
        loop {
            let (shard, id) = {
                let mut inner = self.lock();
                inner.unpause(now);
                if inner.waiting.is_empty() {
                    return Due::Wait(inner.paused.keys().next().map(|(at, _)| *at));
                }
                if inner.running >= self.limit {
                    return Due::Evict(inner.waiting.len().max(self.limit / 100));
                }
                if !inner.take(self, now) {
                    let missing = ONE.saturating_sub(inner.tokens);
                    let pause = missing.div_ceil(u64::from(self.per_second));
                    return Due::Wait(Some(now + Duration::from_nanos(pause)));
                }
                let Some(waiting) = inner.waiting.pop_front() else { continue };
                waiting
            };
            if !shard.start_waiting(&id) {
                self.ended();
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    fn take(&mut self, limits: &Starts, now: Instant) -> bool {
        let since = self.refilled.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let rate = u64::from(limits.per_second);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.tokens = self.tokens.saturating_add(nanos.saturating_mul(rate)).min(rate * ONE);
        self.refilled = Some(now);
        let may = self.running < limits.limit && self.tokens >= ONE;
        if may {
            self.tokens -= ONE;
            self.running += 1;
        }
        may
    }

    /// Moves entities whose pause is over to those that wait.
    fn unpause(&mut self, now: Instant) {
        while let Some(entry) = self.paused.first_entry().filter(|entry| entry.key().0 <= now) {
            self.waiting.push_back(entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::now;

    struct Count(Mutex<Vec<String>>);

    impl Startable for Count {
        fn start_waiting(self: Arc<Self>, id: &str) -> bool {
            self.0.lock().unwrap().push(id.to_owned());
            id != "gone"
        }
    }

    #[test]
    fn s1151_entities_start_at_the_rate_and_in_order() {
        let (starts, count) = (Starts::new(100, 10), Arc::new(Count(Mutex::new(Vec::new()))));
        let begun = now();
        let allowed = (0..20).filter(|_| starts.permit(begun)).count();
        assert_eq!(allowed, 10);
        for at in 0..5 {
            starts.wait(Arc::clone(&count) as _, format!("e{at}").into());
        }
        let due = starts.start_due(begun);
        assert_eq!(due, Due::Wait(Some(begun + Duration::from_millis(100))));
        let later = begun + Duration::from_millis(250);
        assert_eq!(starts.start_due(later), Due::Wait(Some(begun + Duration::from_millis(300))));
        assert_eq!(*count.0.lock().unwrap(), ["e0", "e1"]);
        assert!(!starts.permit(begun + Duration::from_secs(1)), "overtook those that wait");
    }

    #[test]
    fn at_the_limit_idle_entities_are_to_end() {
        let (starts, count) = (Starts::new(2, 10), Arc::new(Count(Mutex::new(Vec::new()))));
        let now = now();
        assert!(starts.permit(now) && starts.permit(now) && !starts.permit(now));
        starts.wait(Arc::clone(&count) as _, "gone".into());
        starts.wait(Arc::clone(&count) as _, "next".into());
        assert_eq!(starts.start_due(now), Due::Evict(2));
        starts.ended();
        // The first was no longer there, so the second has its place.
        assert_eq!(starts.start_due(now), Due::Wait(None));
        assert_eq!(*count.0.lock().unwrap(), ["gone", "next"]);
        assert_eq!(starts.running(), 2);
    }

    #[test]
    fn an_entity_that_failed_starts_after_its_pause() {
        let (starts, count) = (Starts::new(2, 10), Arc::new(Count(Mutex::new(Vec::new()))));
        let now = now();
        let until = now + Duration::from_secs(1);
        starts.pause(Arc::clone(&count) as _, "failed".into(), until);
        assert_eq!(starts.start_due(now), Due::Wait(Some(until)));
        assert_eq!(starts.start_due(until), Due::Wait(None));
        assert_eq!(*count.0.lock().unwrap(), ["failed"]);
    }
}
