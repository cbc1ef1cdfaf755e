//! A lock that can be taken: a spec, a backend and an owner.

use std::fmt;
use std::sync::Arc;

use adieu_core::Deadline;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::lease::Lease;
use crate::lease::machine::Terms;
use crate::locks::{Attempt, BackendError, Claim, Holder, Locks};
use crate::names::{Key, Owner};
use crate::spec::{LockSpec, SpecError};
use crate::time::{Duration, Instant, now};

/// A lock that can be taken.
///
/// This is a handle: clones are cheap and stand for the same lock and owner.
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
/// lease.guard(async { println!("only one of us does this") }).await?;
/// lease.release(Deadline::after(Duration::from_secs(5))).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    inner: Arc<Inner>,
}

struct Inner {
    locks: Arc<dyn Locks>,
    key: Key,
    owner: Owner,
    terms: Terms,
    retry: Duration,
    /// The capability that a step must wait for before it can take the lock, if the backend connects
    /// at start-up.
    capability: Option<Arc<str>>,
    /// Everything that has been started for this lock and has not ended.
    keepers: TaskTracker,
}

const ACQUIRE: &str = "acquire a lease";

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody holds it.
    #[error("failed to acquire lock {key}: {} holds it (fence {})", .holder.owner, .holder.fence)]
    Held {
        /// The lock in question.
        key: Key,
        /// Who.
        holder: Holder,
    },
    /// The backend failed.
    #[error("failed to acquire lock {key}")]
    Backend {
        /// The lock in question.
        key: Key,
        /// What it said.
        #[source]
        source: BackendError,
    },
    /// It could not be had in time.
    #[error("failed to acquire lock {key} in time{}", holder_of(.last))]
    TimedOut {
        /// The lock in question.
        key: Key,
        /// What the last attempt said, if there was one.
        #[source]
        last: Option<Box<AcquireError>>,
    },
}

// === impl AcquireError ===

impl AcquireError {
    /// Whether a repeated attempt would meet the same error; see [`BackendError::is_permanent`].
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Backend { source, .. } if source.is_permanent())
    }
}

fn holder_of(last: &Option<Box<AcquireError>>) -> String {
    match last.as_deref() {
        Some(AcquireError::Held { holder, .. }) => format!(": {} holds it", holder.owner),
        _ => String::new(),
    }
}

// === impl Lock ===

impl Lock {
    /// Joins a spec, a backend and an owner.
    ///
    /// # Errors
    ///
    /// If the key is no name, times make no sense, or the spec needs a fence and the backend has
    /// none.
    pub fn new(
        locks: impl Locks,
        spec: impl Into<LockSpec>,
        owner: &Owner,
    ) -> Result<Self, SpecError> {
        Self::assemble(Arc::new(locks), spec.into(), owner, None)
    }

    /// As [`Lock::new`], on a backend that a step with this capability connects.
    pub(crate) fn assemble(
        locks: Arc<dyn Locks>,
        spec: LockSpec,
        owner: &Owner,
        capability: Option<Arc<str>>,
    ) -> Result<Self, SpecError> {
        let key = Key::new(&spec.key)?;
        spec.check(locks.name(), locks.has_fences())?;
        let terms = Terms { ttl: spec.ttl, margin: spec.margin_or_default() };
        let keepers = TaskTracker::new();
        // Closed, so that waiting for it ends when it is empty. It takes on more all the same.
        keepers.close();
        let (owner, retry) = (owner.clone(), spec.retry);
        let inner = Inner { locks, key, owner, terms, retry, capability, keepers };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What is locked.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.inner.key
    }

    /// In whose name.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.inner.owner
    }

    /// How long it lasts if it is not renewed.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.inner.terms.ttl
    }

    /// Where it is stored.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn Locks> {
        &self.inner.locks
    }

    /// The capability that provides its backend, if that connects at start-up.
    pub(crate) fn capability(&self) -> Option<&Arc<str>> {
        self.inner.capability.as_ref()
    }

    /// Takes the lock if nobody holds it.
    ///
    /// Must be called within a tokio runtime, on which the lease is then renewed.
    ///
    /// # Errors
    ///
    /// If somebody holds it, perhaps ourselves, or the backend fails or does not answer within the
    /// time to live.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a lock that is granted to a future which has been dropped is released, also if
    /// the answer had arrived and the future was not polled again. [`Lock::settled`] waits for that.
    ///
    /// If the answer itself is lost, because the connection broke or the backend did not respond in
    /// time, the lock may have been granted without our knowledge. It then ends with its time to
    /// live.
    pub async fn try_acquire(&self) -> Result<Lease, AcquireError> {
        self.try_acquire_as(self.owner().clone()).await
    }

    /// As [`Lock::try_acquire`], in the name of this owner.
    pub(crate) async fn try_acquire_as(&self, owner: Owner) -> Result<Lease, AcquireError> {
        let (tell, answer) = oneshot::channel();
        let Inner { locks, key, keepers, .. } = &*self.inner;
        keepers.spawn(Arc::clone(&self.inner).ask(owner, tell));
        answer.await.unwrap_or_else(|_| {
            let problem = "the runtime is shutting down";
            let source = BackendError::new(locks.name(), ACQUIRE, problem);
            Err(AcquireError::Backend { key: key.clone(), source })
        })
    }

    /// Takes the lock, and waits for it until the deadline. It looks again and again, at random
    /// intervals, also while the backend is away.
    ///
    /// # Errors
    ///
    /// If it could not be had in time. The error says what the last attempt met. An error of the
    /// backend that does not go away, such as a wrong password, ends the wait at once; see
    /// [`AcquireError::is_permanent`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::try_acquire`].
    pub async fn acquire(&self, until: Deadline) -> Result<Lease, AcquireError> {
        let (began, mut last) = (now(), None);
        loop {
            // Asking who holds it changes nothing there. Only when it is free it is worth more.
            let looks_held = match &last {
                // An answer that does not come counts as nobody.
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
                            let last = last.unwrap_or_else(|| self.no_answer(ACQUIRE, began));
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
                adieu_core::adapter::log_aside(tracing::Level::WARN, || {
                    let (key, error) =
                        (self.key().clone(), adieu_core::adapter::error_text(source));
                    move || tracing::warn!(%key, error, "lock not acquired; retrying")
                });
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

    /// Who holds the lock, and for how long; `None` if nobody does.
    ///
    /// # Errors
    ///
    /// If the backend fails, or does not answer within the lock's time to live.
    pub async fn holder(&self) -> Result<Option<Holder>, AcquireError> {
        self.holder_within(self.ttl()).await
    }

    async fn holder_within(&self, patience: Duration) -> Result<Option<Holder>, AcquireError> {
        let Inner { locks, key, .. } = &*self.inner;
        let no_answer = || BackendError::no_answer(locks.name(), "look at a lease", patience);
        tokio::time::timeout(patience, locks.query(key))
            .await
            .unwrap_or_else(|_| Err(no_answer()))
            .map_err(|source| AcquireError::Backend { key: key.clone(), source })
    }

    /// As [`Lock::holder`], and no later than this.
    async fn holder_by(&self, until: Deadline) -> Result<Option<Holder>, AcquireError> {
        self.holder_within(self.ttl().min(until.remaining())).await
    }

    /// Waits until every attempt that was made through this handle or its clones has been answered,
    /// and every lease has been released or has ended. Returns false if the deadline passes first.
    ///
    /// For the end of a process: a lease that was dropped, because the task that held it was
    /// aborted or the future that asked for it was cancelled, is released in the background.
    pub async fn settled(&self, until: Deadline) -> bool {
        tokio::select! {
            biased;
            () = self.inner.keepers.wait() => true,
            () = until.passed() => false,
        }
    }

    /// How long to wait before looking again: random by half, so that replicas that were started
    /// together do not ask together.
    pub(crate) fn pause(&self) -> Duration {
        self.inner.retry.mul_f64(0.5 + fastrand::f64())
    }

    /// That the backend did not answer a request that was made at `asked`.
    pub(crate) fn no_answer(&self, verb: &'static str, asked: Instant) -> AcquireError {
        let Inner { locks, key, .. } = &*self.inner;
        let waited = now().saturating_duration_since(asked);
        let source = BackendError::no_answer(locks.name(), verb, waited);
        AcquireError::Backend { key: key.clone(), source }
    }

    pub(crate) fn timed_out(&self, last: Option<AcquireError>) -> AcquireError {
        AcquireError::TimedOut { key: self.key().clone(), last: last.map(Box::new) }
    }
}

impl Inner {
    /// Makes one attempt in a task of its own, which a dropped waiter cannot cancel.
    ///
    /// The task sends a lease, not a claim: a claim in a channel whose receiver is dropped would be
    /// held by nobody for its whole time to live. A lease is released by its keeper, which this task
    /// has started, wherever the lease is dropped.
    async fn ask(
        self: Arc<Self>,
        owner: Owner,
        tell: oneshot::Sender<Result<Lease, AcquireError>>,
    ) {
        let attempt = self.attempt(&owner).await;
        let _ = tell.send(attempt);
    }

    async fn attempt(&self, owner: &Owner) -> Result<Lease, AcquireError> {
        let Self { locks, key, terms, keepers, .. } = self;
        let sent = now();
        // What is granted later than this would be over before it began.
        let patience = terms.ttl - terms.margin;
        let attempt = tokio::time::timeout(patience, locks.try_acquire(key, owner, terms.ttl))
            .await
            .unwrap_or_else(|_| Err(BackendError::no_answer(locks.name(), ACQUIRE, patience)));
        let key = key.clone();
        match attempt {
            Ok(Attempt::Acquired(claim)) => {
                let Claim { owner, fence, .. } = &claim;
                adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
                    let (key, owner, fence) = (key.clone(), owner.clone(), *fence);
                    move || tracing::debug!(%key, %owner, %fence, "lease acquired")
                });
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
