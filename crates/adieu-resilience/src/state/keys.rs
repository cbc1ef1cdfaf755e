//! The parts for each key, for a bounded number of keys.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::parts::Parts;
use crate::time::Instant;

/// How many keys have parts of their own.
const MOST: usize = 4_096;
/// How many idle keys are removed at once, so that not every new key searches all others.
const IDLE_AT_ONCE: usize = MOST / 8;
/// How many keys are removed at once if none is idle: fewer, because their state is lost.
const BUSY_AT_ONCE: usize = MOST / 64;

#[derive(Default)]
pub(super) struct Keys {
    map: RwLock<HashMap<Box<str>, Entry>>,
    clock: AtomicU64,
    /// Shared by all further keys while none can be removed.
    others: OnceLock<Arc<Parts>>,
}

struct Entry {
    parts: Arc<Parts>,
    /// The value of `clock` at the last use.
    used: AtomicU64,
}

/// The parts that a call goes through.
pub(crate) enum Found<'a> {
    Whole(&'a Parts),
    /// Holding it keeps the key from being removed.
    Keyed(Arc<Parts>),
}

// === impl Keys ===

impl Keys {
    /// Returns how many keys there are, and how many of them are open.
    pub(super) fn count(&self) -> (usize, usize) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        (map.len(), map.values().filter(|entry| entry.parts.is_open()).count())
    }

    /// Returns the result of `of` for the parts of each key, if it has one. It must return no reference to
    /// the parts: that would keep the key from being removed.
    pub(super) fn collect<T>(&self, of: impl Fn(&Parts) -> Option<T>) -> Vec<T> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let keyed = map.values().map(|entry| &*entry.parts);
        keyed.chain(self.others.get().map(|parts| &**parts)).filter_map(of).collect()
    }

    /// Returns the parts for this key, made by `new` if it has none.
    pub(super) fn get(&self, key: &str, now: Instant, new: impl Fn(&str) -> Parts) -> Arc<Parts> {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = map.get(key) {
                entry.used.store(used, Ordering::Relaxed);
                return Arc::clone(&entry.parts);
            }
        }
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if !map.contains_key(key) && map.len() >= MOST {
            make_room(&mut map, now);
        }
        let is_full = map.len() >= MOST;
        match map.get(key) {
            Some(entry) => Arc::clone(&entry.parts),
            None if is_full => Arc::clone(self.others.get_or_init(|| Arc::new(new("(others)")))),
            None => {
                let parts = Arc::new(new(key));
                let entry = Entry { parts: Arc::clone(&parts), used: AtomicU64::new(used) };
                map.insert(key.into(), entry);
                parts
            }
        }
    }
}

/// Removes idle keys, those first that were not used for the longest time. If none is idle, removes
/// some that are not open and have no call.
fn make_room(map: &mut HashMap<Box<str>, Entry>, now: Instant) {
    // No other thread can take a reference while this one has the lock.
    let is_free = |entry: &Entry| Arc::strong_count(&entry.parts) == 1 && !entry.parts.is_open();
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    for entry in map.values().filter(|entry| is_free(entry)) {
        let list = if entry.parts.is_idle(now) { &mut idle } else { &mut busy };
        list.push(entry.used.load(Ordering::Relaxed));
    }
    let (mut used, most) =
        if idle.is_empty() { (busy, BUSY_AT_ONCE) } else { (idle, IDLE_AT_ONCE) };
    used.sort_unstable();
    used.truncate(most);
    // No two keys have the same number.
    map.retain(|_, entry| used.binary_search(&entry.used.load(Ordering::Relaxed)).is_err());
}

// === impl Found ===

impl Deref for Found<'_> {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        match self {
            Self::Whole(parts) => parts,
            Self::Keyed(parts) => parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;
    use std::time::Duration;

    use adieu_core::{Config, Shutdown};

    use super::{BUSY_AT_ONCE, MOST};
    use crate::{Attempt, Breaker, Policy, Rate};

    #[test]
    fn s1658_keys_that_are_being_reported_can_be_removed() {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let policy = Policy::new("p").breaker(Breaker::at(0.5)).start(&shutdown).unwrap();
        for key in 0..MOST {
            policy.state().parts(Some(&key.to_string()));
        }
        let (reporting, has_begun) = mpsc::channel();
        let (found, is_found) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_found = is_found;
                let is_first = Cell::new(true);
                policy.state().keys.collect(|_| {
                    if is_first.replace(false) {
                        reporting.send(()).unwrap();
                        // The other thread finds its key now, or waits until this is over.
                        let _ = is_found.recv_timeout(Duration::from_millis(200));
                    }
                    None::<()>
                });
            });
            has_begun.recv().unwrap();
            let id = policy.state().parts(Some("new")).id.to_string();
            let _ = found.send(());
            assert_eq!(id, "p/new");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn s1658_if_no_key_is_idle_some_of_those_used_longest_ago_are_removed() {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let policy = Policy::new("p").rate(Rate::per_second(1).burst(1)).start(&shutdown).unwrap();
        let call = async |key: usize| {
            let key = key.to_string();
            policy.caller().key(&key).call(async |_: Attempt| Ok::<_, ()>(())).await.is_ok()
        };
        for key in 0..MOST {
            assert!(call(key).await);
        }
        assert!(call(MOST).await);
        assert_eq!(policy.status().keys, MOST - BUSY_AT_ONCE + 1);
        assert!(!call(BUSY_AT_ONCE).await, "the state of this key was kept");
    }
}
