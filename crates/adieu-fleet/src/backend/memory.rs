//! Locks within one process, for tests and for services with a single replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use adieu_core::adapter::lock;

use crate::lock_backend::{Attempt, Claim, ClaimStatus, Fence, Holder, LockBackend, Marker, Reply};
use crate::names::{Key, Owner};
use crate::time::{Duration, Instant, now};

/// Locks within one process, on tokio's clock.
///
/// Clones share their locks. For tests and for services with a single replica: all locks, markers
/// and fences are lost when the process ends.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    slots: Arc<Mutex<HashMap<Key, Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    fence: u64,
    held: Option<(Owner, Instant)>,
    markers: HashMap<String, Marker>,
}

// === impl Memory ===

impl Memory {
    /// Creates a store without locks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T: Send + 'static>(
        &self,
        key: &Key,
        act: impl FnOnce(&mut Slot, Instant) -> T,
    ) -> Reply<'static, T> {
        let mut slots = lock(&self.slots);
        let done = act(slots.entry(key.clone()).or_default(), now());
        Box::pin(std::future::ready(Ok(done)))
    }

    fn as_holder<T: Send + 'static>(
        &self,
        claim: &Claim,
        act: impl FnOnce(&mut Slot, Instant) -> T,
    ) -> Reply<'static, ClaimStatus> {
        self.with(&claim.key, |slot, now| {
            let holder = slot.holder(now);
            let is_held = holder
                .is_some_and(|holder| holder.owner == claim.owner && holder.fence == claim.fence);
            if is_held {
                act(slot, now);
            }
            ClaimStatus::held_if(is_held)
        })
    }
}

impl LockBackend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn has_fences(&self) -> bool {
        true
    }

    fn is_local(&self) -> Option<&'static str> {
        Some("locks in memory, which no other process sees")
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        self.with(key, |slot, now| match slot.holder(now) {
            Some(holder) => Attempt::Held(holder),
            None => {
                slot.fence += 1;
                slot.held = Some((owner.clone(), now + ttl));
                let fence = Fence::new(slot.fence);
                Attempt::Acquired(Claim {
                    key: key.clone(),
                    owner: owner.clone(),
                    fence,
                    ticket: 0,
                })
            }
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        self.as_holder(claim, |slot, now| slot.held = Some((claim.owner.clone(), now + ttl)))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        self.as_holder(claim, |slot, _| slot.held = None)
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        self.with(key, |slot, now| slot.holder(now))
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        self.as_holder(claim, |slot, _| {
            let marker = Marker { value: value.to_owned(), fence: claim.fence };
            slot.markers.insert(name.to_owned(), marker);
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        self.with(key, |slot, _| slot.markers.get(name).cloned())
    }
}

// === impl Slot ===

impl Slot {
    fn holder(&self, now: Instant) -> Option<Holder> {
        let (owner, until) = self.held.as_ref()?;
        let remaining = until.saturating_duration_since(now);
        let fence = Fence::new(self.fence);
        (!remaining.is_zero()).then(|| Holder { owner: owner.clone(), fence, remaining })
    }
}
