//! A backend that a step of start-up connects, for locks that are declared earlier.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// A backend that a step of start-up connects. Until then every request fails, and can be repeated.
#[derive(Default)]
pub(crate) struct AtStartUp {
    connected: OnceLock<Arc<dyn LockBackend>>,
}

const NAME: &str = "the backend that connects at start-up";

// === impl AtStartUp ===

impl AtStartUp {
    /// Sets the connected backend. Later calls have no effect.
    pub(crate) fn connect(&self, locks: Arc<dyn LockBackend>) {
        let _ = self.connected.set(locks);
    }

    /// Makes a request to the backend, if it is connected.
    fn request<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        make: impl FnOnce(&'a dyn LockBackend) -> Reply<'a, T>,
    ) -> Reply<'a, T> {
        match self.connected.get() {
            Some(locks) => make(&**locks),
            None => {
                let error =
                    BackendError::new(NAME, verb, "the step that connects it has not started yet");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}

impl LockBackend for AtStartUp {
    fn name(&self) -> &'static str {
        self.connected.get().map_or(NAME, |locks| locks.name())
    }

    /// True until the backend is connected; the step that connects it checks the backend.
    fn has_fences(&self) -> bool {
        self.connected.get().is_none_or(|locks| locks.has_fences())
    }

    fn is_local(&self) -> Option<&'static str> {
        self.connected.get().and_then(|locks| locks.is_local())
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        self.request("acquire a lease", move |locks| locks.try_acquire(key, owner, ttl))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        self.request("renew a lease", move |locks| locks.renew(claim, ttl))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        self.request("release a lease", move |locks| locks.release(claim))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        self.request("query a lease", move |locks| locks.query(key))
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        self.request("write a marker", move |locks| locks.mark(claim, name, value))
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        self.request("read a marker", move |locks| locks.marker(key, name))
    }

    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        match self.connected.get() {
            Some(locks) => locks.ended(claim),
            None => Box::pin(std::future::pending()),
        }
    }
}
