//! A lock: a spec, a backend and an owner. Acquires leases.

use std::fmt;
use std::sync::Arc;

use adieu_core::Deadline;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::journal;
use crate::lease::Lease;
use crate::lease::machine::Terms;
use crate::lock_backend::{Attempt, BackendError, Holder, LockBackend};
use crate::names::{Key, Owner};
use crate::spec::{LockSpec, SpecError};
use crate::time::{Duration, Instant, now};

/// A lock that one replica at a time can hold.
///
/// This is a handle: clones are cheap and refer to the same lock and owner.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use adieu_core::Deadline;
/// use adieu_fleet::{Lock, LockSpec, Memory, Owner};
/// use std::time::Duration;
///
/// let spec = LockSpec::new("nightly-export").ttl(Duration::from_secs(15));
/// let lock = Lock::new(Memory::new(), spec, &Owner::this_process())?;
///
/// let lease = lock.acquire(Deadline::after(Duration::from_secs(5))).await?;
/// lease.guard(async { println!("one replica at a time does this") }).await?;
/// lease.release(Deadline::after(Duration::from_secs(5))).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    inner: Arc<Inner>,
}

struct Inner {
    locks: Arc<dyn LockBackend>,
    key: Key,
    owner: Owner,
    terms: Terms,
    retry: Duration,
    /// The capability that a step must require to use the lock, if the backend connects at start-up.
    capability: Option<Arc<str>>,
    /// The tasks of this lock that have not ended: attempts, and keepers of leases.
    keepers: TaskTracker,
}

const ACQUIRE: &str = "acquire a lease";

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock is held.
    #[error("failed to acquire lock {key}: held by {} (fence {})", .holder.owner, .holder.fence)]
    Held {
        /// The lock in question.
        key: Key,
        /// The holder.
        holder: Holder,
    },
    /// The backend failed.
    #[error("failed to acquire lock {key}")]
    Backend {
        /// The lock in question.
        key: Key,
        /// The error of the backend.
        #[source]
        source: BackendError,
    },
    /// The lock could not be acquired in time.
    #[error("timed out acquiring lock {key}{}", holder_of(.last))]
    TimedOut {
        /// The lock in question.
        key: Key,
        /// The error of the last attempt, if there was one.
        #[source]
        last: Option<Box<AcquireError>>,
    },
}

// === impl AcquireError ===

impl AcquireError {
    /// Returns whether a repeated attempt would meet the same error; see
    /// [`BackendError::is_permanent`].
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Backend { source, .. } if source.is_permanent())
    }
}

fn holder_of(last: &Option<Box<AcquireError>>) -> String {
    match last.as_deref() {
        Some(AcquireError::Held { holder, .. }) => format!(": held by {}", holder.owner),
        _ => String::new(),
    }
}

// === impl Lock ===

impl Lock {
    /// Creates a lock from a backend, a spec and an owner.
    ///
    /// # Errors
    ///
    /// If the key is not a valid name, a duration is out of range, or the spec needs a fence and the
    /// backend has none.
    pub fn new(
        locks: impl LockBackend,
        spec: impl Into<LockSpec>,
        owner: &Owner,
    ) -> Result<Self, SpecError> {
        Self::assemble(Arc::new(locks), spec.into(), owner, None)
    }

    /// Creates a lock, as [`Lock::new`] does, on a backend that the step with this capability
    /// connects.
    pub(crate) fn assemble(
        locks: Arc<dyn LockBackend>,
        spec: LockSpec,
        owner: &Owner,
        capability: Option<Arc<str>>,
    ) -> Result<Self, SpecError> {
        let key = Key::new(&spec.key)?;
        spec.check(locks.name(), locks.has_fences())?;
        let terms = Terms { ttl: spec.ttl, margin: spec.margin_or_default() };
        let keepers = TaskTracker::new();
        // Closed, so that `wait` ends when it is empty. A closed tracker still accepts tasks.
        keepers.close();
        let (owner, retry) = (owner.clone(), spec.retry);
        let inner = Inner { locks, key, owner, terms, retry, capability, keepers };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.inner.key
    }

    /// Returns the owner in whose name the lock is acquired.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.inner.owner
    }

    /// Returns how long the lock lasts if it is not renewed.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.inner.terms.ttl
    }

    /// Returns the backend that stores the lock.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn LockBackend> {
        &self.inner.locks
    }

    /// Returns the capability that provides the backend, if it connects at start-up.
    pub(crate) fn capability(&self) -> Option<&Arc<str>> {
        self.inner.capability.as_ref()
    }

    /// Acquires the lock if it is free.
    ///
    /// Must be called within a tokio runtime, on which the lease is then renewed.
    ///
    /// # Errors
    ///
    /// If the lock is held, possibly by the same owner, or the backend fails or does not respond
    /// within the time to live.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, a lock that is granted to it is released, even if the
    /// response had arrived before. [`Lock::settled`] waits for that.
    ///
    /// If the response is lost, because the connection broke or the backend did not respond in time,
    /// the lock may have been granted without this process knowing. It then expires after its time
    /// to live.
    pub async fn try_acquire(&self) -> Result<Lease, AcquireError> {
        self.try_acquire_as(self.owner().clone()).await
    }

    /// Acquires the lock in the name of this owner; see [`Lock::try_acquire`].
    pub(crate) async fn try_acquire_as(&self, owner: Owner) -> Result<Lease, AcquireError> {
        let (reply, response) = oneshot::channel();
        let Inner { locks, key, keepers, .. } = &*self.inner;
        keepers.spawn(Arc::clone(&self.inner).attempt_for(owner, reply));
        response.await.unwrap_or_else(|_| {
            let problem = "the runtime is shutting down";
            let source = BackendError::new(locks.name(), ACQUIRE, problem);
            Err(AcquireError::Backend { key: key.clone(), source })
        })
    }

    /// Waits for the lock until the deadline, and acquires it. Attempts are repeated at random
    /// intervals, also while the backend cannot be reached.
    ///
    /// # Errors
    ///
    /// If the lock could not be acquired in time; the error contains that of the last attempt. A
    /// permanent error of the backend, such as a wrong password, ends the wait immediately; see
    /// [`AcquireError::is_permanent`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Lock::try_acquire`].
    pub async fn acquire(&self, until: Deadline) -> Result<Lease, AcquireError> {
        let (began, mut last) = (now(), None);
        loop {
            // A query costs less than an attempt, which writes. Attempt only if the lock is free.
            let looks_held = match &last {
                // A failed query counts as free: the attempt then reports the error.
                Some(AcquireError::Held { .. }) => self.holder_by(until).await.unwrap_or(None),
                _ => None,
            };
            let error = match looks_held {
                Some(holder) => AcquireError::Held { key: self.key().clone(), holder },
                None => {
                    let attempt = self.try_acquire();
                    match tokio::time::timeout_at(until.instant(), attempt).await {
                        Ok(Ok(lease)) => return Ok(lease),
                        Ok(Err(error)) => error,
                        Err(_) => {
                            let last = last.unwrap_or_else(|| self.no_response(ACQUIRE, began));
                            return Err(self.timed_out(Some(last)));
                        }
                    }
                }
            };
            if error.is_permanent() {
                return Err(error);
            }
            if let AcquireError::Backend { source, .. } = &error
                && !matches!(last, Some(AcquireError::Backend { .. }))
            {
                journal::lock_not_acquired(self.key(), source);
            }
            last = Some(error);
            let pause = self.pause();
            if until.remaining() <= pause {
                until.passed().await;
                return Err(self.timed_out(last));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns the holder of the lock; `None` if it is free.
    ///
    /// # Errors
    ///
    /// If the backend fails, or does not respond within the lock's time to live.
    pub async fn holder(&self) -> Result<Option<Holder>, AcquireError> {
        self.holder_within(self.ttl()).await
    }

    async fn holder_within(&self, patience: Duration) -> Result<Option<Holder>, AcquireError> {
        let Inner { locks, key, .. } = &*self.inner;
        let no_response = || BackendError::no_response(locks.name(), "query a lease", patience);
        tokio::time::timeout(patience, locks.query(key))
            .await
            .unwrap_or_else(|_| Err(no_response()))
            .map_err(|source| AcquireError::Backend { key: key.clone(), source })
    }

    /// Returns the holder, as [`Lock::holder`] does, and waits no longer than `until`.
    async fn holder_by(&self, until: Deadline) -> Result<Option<Holder>, AcquireError> {
        self.holder_within(self.ttl().min(until.remaining())).await
    }

    /// Waits until every attempt that was made through this handle or its clones has ended, and every
    /// lease has been released or has expired. Returns false if the deadline passes first.
    ///
    /// For the end of a process: a lease that was dropped, because the task that held it was aborted
    /// or the future that requested it was cancelled, is released in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn settled(&self, until: Deadline) -> bool {
        tokio::select! {
            biased;
            () = self.no_keepers() => true,
            () = until.passed() => false,
        }
    }

    async fn no_keepers(&self) {
        let keepers = &self.inner.keepers;
        // `wait` alone can return while tasks run: a task that was the last one when it ended wakes
        // the waiters a little later, when other tasks may have been added.
        while !keepers.is_empty() {
            keepers.wait().await;
        }
    }

    /// Returns a pause before the next attempt. It is random, so that replicas that were started
    /// together do not retry together.
    pub(crate) fn pause(&self) -> Duration {
        self.inner.retry.mul_f64(0.5 + fastrand::f64())
    }

    /// Returns the error for a request that was sent at `sent` and has no response.
    pub(crate) fn no_response(&self, verb: &'static str, sent: Instant) -> AcquireError {
        let Inner { locks, key, .. } = &*self.inner;
        let waited = now().saturating_duration_since(sent);
        let source = BackendError::no_response(locks.name(), verb, waited);
        AcquireError::Backend { key: key.clone(), source }
    }

    pub(crate) fn timed_out(&self, last: Option<AcquireError>) -> AcquireError {
        AcquireError::TimedOut { key: self.key().clone(), last: last.map(Box::new) }
    }
}

impl Inner {
    /// Makes one attempt in a task of its own, which a dropped waiter cannot cancel.
    ///
    /// The task sends a lease, not a claim. A claim in a channel whose receiver is dropped would stay
    /// granted for its whole time to live. A lease is released by its keeper, wherever it is
    /// dropped.
    async fn attempt_for(
        self: Arc<Self>,
        owner: Owner,
        reply: oneshot::Sender<Result<Lease, AcquireError>>,
    ) {
        let attempt = self.attempt(&owner).await;
        let _ = reply.send(attempt);
    }

    async fn attempt(&self, owner: &Owner) -> Result<Lease, AcquireError> {
        let Self { locks, key, terms, keepers, .. } = self;
        let sent = now();
        // A lease that is granted later than this would have expired already.
        let patience = terms.ttl - terms.margin;
        let attempt = tokio::time::timeout(patience, locks.try_acquire(key, owner, terms.ttl))
            .await
            .unwrap_or_else(|_| Err(BackendError::no_response(locks.name(), ACQUIRE, patience)));
        let key = key.clone();
        match attempt {
            Ok(Attempt::Acquired(claim)) => {
                journal::lease_acquired(&claim);
                Ok(Lease::begin(Arc::clone(locks), claim, *terms, sent, keepers))
            }
            Ok(Attempt::Held(holder)) => Err(AcquireError::Held { key, holder }),
            Err(source) => Err(AcquireError::Backend { key, source }),
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", self.key())
            .field("owner", self.owner())
            .field("locks", &self.inner.locks.name())
            .finish_non_exhaustive()
    }
}
