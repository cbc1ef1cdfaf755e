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
const AT_ONCE: usize = MOST / 8;

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

    /// All parts.
    pub(super) fn all(&self) -> Vec<Arc<Parts>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let keyed = map.values().map(|entry| Arc::clone(&entry.parts));
        keyed.chain(self.others.get().cloned()).collect()
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
/// one that is not open and has no call.
fn make_room(map: &mut HashMap<Box<str>, Entry>, now: Instant) {
    // No other thread can take a reference while this one has the lock.
    let is_free = |entry: &Entry| Arc::strong_count(&entry.parts) == 1 && !entry.parts.is_open();
    let candidates = map.iter().filter(|(_, entry)| is_free(entry));
    let mut candidates: Vec<_> = candidates
        .map(|(key, entry)| {
            (!entry.parts.is_idle(now), entry.used.load(Ordering::Relaxed), key.clone())
        })
        .collect();
    candidates.sort_unstable();
    let idle = candidates.iter().take_while(|(is_busy, ..)| !is_busy).count();
    for (_, _, key) in candidates.into_iter().take(idle.clamp(1, AT_ONCE)) {
        map.remove(&key);
    }
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
