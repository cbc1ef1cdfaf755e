//! What a backend must do: give a lock to one at a time, for a while, with a fence.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::names::{Key, Owner};

/// What a backend answers, when it does.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// An error of a client or a server, of whatever kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store of locks that several processes share.
///
/// This is what a backend implements; what an application uses is [`Lock`](crate::Lock), which
/// waits, renews, watches the clock and releases.
///
/// # What a backend promises
///
/// 1. A key has one holder at a time. It is not re-entrant: who holds it is refused like others.
/// 2. A lock that is not renewed ends `ttl` after it was granted or last renewed, by a clock that
///    all processes share, and never sooner.
/// 3. The fence of each grant of a key is higher than of all before that the store remembers, also
///    after releases, expiries and restarts. Renewing does not change it.
/// 4. Renewing, releasing and marking succeed only for the owner and the fence that hold the lock,
///    and are decided where the lock is stored, in one step.
///
/// Every method is one attempt, and may take as long as the connection lets it: callers bound it.
/// They repeat what fails, except with [`BackendError::permanent`].
/// Dropping a future of a method may or may not undo what it has asked for.
pub trait Locks: Send + Sync + 'static {
    /// What it is called in messages, such as `redis`.
    fn name(&self) -> &'static str;

    /// Whether grants have fences. A backend without them answers with [`Fence::NONE`], and is
    /// refused where a fence is needed.
    fn has_fences(&self) -> bool;

    /// What is wrong with it in a fleet of several machines, if something is: that nobody else sees
    /// its locks. A lifecycle for a fleet warns of it.
    fn is_local(&self) -> Option<&'static str> {
        None
    }

    /// Takes the lock if nobody holds it.
    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt>;

    /// Makes the lock last `ttl` from now, if it is still held under this claim.
    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing>;

    /// Gives the lock up, if it is still held under this claim.
    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing>;

    /// Who holds the lock, and for how long; `None` if nobody does.
    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>>;

    /// Writes a small value beside the lock, under a name, if the lock is still held under this
    /// claim; with its fence.
    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing>;

    /// What was last written under this name.
    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>>;

    /// Waits until it is known here, without asking, that a claim does not hold any more: because
    /// the session that it belongs to has ended, for example. For ever, where that cannot be known.
    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let _ = claim;
        Box::pin(std::future::pending())
    }
}

/// A number that rises with each grant of a lock.
///
/// What is guarded must refuse whoever comes with a lower one than it has seen: a process can be
/// suspended for any time between looking at its lease and writing, and nothing else can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

/// A lock that was granted: what a backend needs to renew and release it.
///
/// It says nothing about whether it is still held: that is what a [`Lease`](crate::Lease) knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is locked.
    pub key: Key,
    /// By whom.
    pub owner: Owner,
    /// Which grant of this key it is.
    pub fence: Fence,
    /// Anything else by which the backend finds it again, such as the id of a lease.
    pub ticket: i64,
}

/// How an attempt to take a lock ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lock that was acquired must be released"]
pub enum Attempt {
    /// It is ours.
    Acquired(Claim),
    /// Somebody holds it, perhaps ourselves.
    Held(Holder),
}

/// Whether a claim still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a claim that does not hold any more protects nothing"]
pub enum Standing {
    /// It held, and what was asked for is done.
    Held,
    /// It has expired, was released, or belongs to somebody else. Nothing was done.
    Lost,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// By name.
    pub owner: Owner,
    /// Under which grant.
    pub fence: Fence,
    /// How long it lasts if it is not renewed.
    pub remaining: Duration,
}

/// A small value beside a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The value.
    pub value: String,
    /// The fence with which it was written.
    pub fence: Fence,
}

/// What went wrong at a backend: it could not be reached, or did not do as it should.
///
/// A permanent error ends every wait at once; all others are retried. See
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

// === impl Locks ===

impl<L: Locks + ?Sized> Locks for Arc<L> {
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

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing> {
        (**self).renew(claim, ttl)
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        (**self).release(claim)
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        (**self).query(key)
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
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
    /// What a backend answers that has no fences. Lower than any.
    pub const NONE: Self = Self(0);

    /// A fence of this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself, to be stored with what is guarded.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The same as a signed number, for stores that have no others.
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

// === impl Standing ===

impl Standing {
    /// Whether the claim held.
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
    /// An error of the backend of this name, which completes "failed to …". A later attempt may
    /// succeed.
    pub fn new(backend: &'static str, verb: &'static str, source: impl Into<BoxError>) -> Self {
        Self { backend, verb, is_permanent: false, source: Arc::from(source.into()) }
    }

    /// As [`BackendError::new`], for an error that a repeated attempt meets again: a wrong password,
    /// a missing permission, an unknown database.
    pub fn permanent(
        backend: &'static str,
        verb: &'static str,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::permanent_if(true, backend, verb, source)
    }

    /// An error that is permanent or not.
    pub(crate) fn permanent_if(
        is_permanent: bool,
        backend: &'static str,
        verb: &'static str,
        source: impl Into<BoxError>,
    ) -> Self {
        Self { is_permanent, ..Self::new(backend, verb, source) }
    }

    /// Whether a repeated attempt would meet the same error. Waiting for a lock, a turn or a marker
    /// ends with such an error instead of retrying.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    /// An answer did not come in time.
    pub(crate) fn no_answer(backend: &'static str, verb: &'static str, waited: Duration) -> Self {
        Self::new(backend, verb, format!("no answer within {}ms", waited.as_millis()))
    }
}
