//! The interface of a backend: it grants a lock to one holder at a time, for a limited time, with a
//! fence.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::names::{Key, Owner};

/// The response of a backend.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store of locks that several processes share.
///
/// Backends implement this trait. Applications use [`Lock`](crate::Lock), which waits, renews, checks
/// the clock and releases.
///
/// # Contract
///
/// 1. A key has one holder at a time. Locks are not re-entrant: an attempt of the holder is refused
///    as well.
/// 2. A lock that is not renewed expires `ttl` after it was granted or last renewed, by a clock that
///    all processes share, and never earlier.
/// 3. The fence of each grant of a key is higher than the fences of all earlier grants that the store
///    remembers, across releases, expiries and restarts. Renewing does not change it.
/// 4. Renewing, releasing and marking succeed only for the owner and the fence that hold the lock.
///    The store checks that and applies the change in one step.
///
/// Every method makes one attempt and has no timeout of its own: callers bound it. They retry after
/// errors, except after a permanent one ([`BackendError::permanent`]).
/// If the future of a method is dropped, its request may or may not take effect.
pub trait LockBackend: Send + Sync + 'static {
    /// Returns the name of the backend for messages, such as `redis`.
    fn name(&self) -> &'static str;

    /// Returns whether grants have fences. A backend without fences uses [`Fence::NONE`], and is
    /// refused where a fence is needed.
    fn has_fences(&self) -> bool;

    /// Returns why the locks are not visible to other machines, if they are not. A lifecycle with
    /// the profile `Fleet` warns about it.
    fn is_local(&self) -> Option<&'static str> {
        None
    }

    /// Acquires the lock if it is free.
    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt>;

    /// Extends the lock to `ttl` from now, if the claim still holds it.
    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus>;

    /// Releases the lock, if the claim still holds it.
    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus>;

    /// Returns the holder of the lock; `None` if it is free.
    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>>;

    /// Writes a marker, a small value with a name and the fence of the claim, beside the lock, if the
    /// claim still holds it.
    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus>;

    /// Returns the marker that was last written under this name.
    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>>;

    /// Waits until this process can detect, without a request, that a claim no longer holds, for
    /// example because the session that it belongs to has ended. Backends that cannot detect this
    /// wait for ever, which is the default.
    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let _ = claim;
        Box::pin(std::future::pending())
    }
}

/// A number that rises with each grant of a lock.
///
/// A store that is written to under the lock must reject a fence that is lower than the highest it
/// has seen. A process can be suspended for any time between the check of its lease and the write,
/// and nothing but the fence detects that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

/// A grant of a lock, with everything that a backend needs to renew and release it.
///
/// A claim does not show whether the lock is still held; a [`Lease`](crate::Lease) does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key of the lock.
    pub key: Key,
    /// The holder.
    pub owner: Owner,
    /// The fence of the grant.
    pub fence: Fence,
    /// A number by which the backend finds the grant again, such as the id of a lease.
    pub ticket: i64,
}

/// The result of an attempt to acquire a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lock that was acquired must be released"]
pub enum Attempt {
    /// The lock was granted.
    Acquired(Claim),
    /// The lock is held, possibly by the same owner.
    Held(Holder),
}

/// Whether a claim still holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a claim that no longer holds protects nothing"]
pub enum ClaimStatus {
    /// The claim held the lock, and the request was executed.
    Held,
    /// The lock has expired, was released, or has another holder. The request had no effect.
    Lost,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder's name.
    pub owner: Owner,
    /// The fence of the grant.
    pub fence: Fence,
    /// How long the grant lasts if it is not renewed.
    pub remaining: Duration,
}

/// A small value that is stored beside a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The value.
    pub value: String,
    /// The fence of the claim that wrote the value.
    pub fence: Fence,
}

/// An error of a backend: it could not be reached, or a request failed.
///
/// A permanent error ends every wait immediately; all others are retried. See
/// [`BackendError::is_permanent`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{backend} failed to {verb}")]
pub struct BackendError {
    backend: &'static str,
    verb: &'static str,
    is_permanent: bool,
    #[source]
    source: Arc<dyn std::error::Error + Send + Sync>,
}

// === impl LockBackend ===

impl<L: LockBackend + ?Sized> LockBackend for Arc<L> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn has_fences(&self) -> bool {
        (**self).has_fences()
    }

    fn is_local(&self) -> Option<&'static str> {
        (**self).is_local()
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        (**self).try_acquire(key, owner, ttl)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        (**self).renew(claim, ttl)
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        (**self).release(claim)
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        (**self).query(key)
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        (**self).mark(claim, name, value)
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        (**self).marker(key, name)
    }

    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        (**self).ended(claim)
    }
}

// === impl Fence ===

impl Fence {
    /// The fence of grants by a backend without fences. Lower than every other fence.
    pub const NONE: Self = Self(0);

    /// Creates a fence with this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, to be stored with the guarded data.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the number as a signed integer, for stores that have no unsigned ones.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

// === impl ClaimStatus ===

impl ClaimStatus {
    /// Returns whether the claim held the lock.
    #[must_use]
    pub fn is_held(self) -> bool {
        self == Self::Held
    }

    pub(crate) fn held_if(held: bool) -> Self {
        if held { Self::Held } else { Self::Lost }
    }
}

// === impl BackendError ===

impl BackendError {
    /// Creates an error of the backend with this name. `verb` completes "failed to …". A later
    /// attempt may succeed.
    pub fn new(backend: &'static str, verb: &'static str, source: impl Into<BoxError>) -> Self {
        Self { backend, verb, is_permanent: false, source: Arc::from(source.into()) }
    }

    /// Creates an error that a repeated attempt would meet again: a wrong password, a missing
    /// permission, an unknown database. See [`BackendError::new`].
    pub fn permanent(
        backend: &'static str,
        verb: &'static str,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::permanent_if(true, backend, verb, source)
    }

    /// Creates an error that may be permanent.
    pub(crate) fn permanent_if(
        is_permanent: bool,
        backend: &'static str,
        verb: &'static str,
        source: impl Into<BoxError>,
    ) -> Self {
        Self { is_permanent, ..Self::new(backend, verb, source) }
    }

    /// Returns whether a repeated attempt would meet the same error. Waiting for a lock, a turn or a
    /// marker ends with such an error instead of retrying.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    /// Creates the error for a response that did not arrive in time.
    pub(crate) fn no_response(backend: &'static str, verb: &'static str, waited: Duration) -> Self {
        Self::new(backend, verb, format!("no response within {}ms", waited.as_millis()))
    }
}
