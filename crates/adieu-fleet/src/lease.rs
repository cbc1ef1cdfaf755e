//! A held lock: renewed while a handle to it exists, and then released.

mod guard;
mod keeper;
pub(crate) mod machine;

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use adieu_core::Deadline;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use machine::LossCause;
use machine::{Heartbeat, Terms};

use crate::journal;
use crate::lock_backend::{BackendError, Claim, ClaimStatus, Fence, LockBackend};
use crate::names::{Key, Owner};
use crate::time::{Duration, Instant, now};

/// A held lock.
///
/// The lease is renewed in the background, at about a third of its time to live. If renewing fails,
/// the lease is given up a margin before another replica can acquire the lock: [`Lease::lost`]
/// fires, and work that runs in [`Lease::guard`] is dropped.
///
/// Clones refer to the same lease, which is released when the last of them is dropped. Each task
/// that works under the lease should hold a clone, so that the lock is not released while the task
/// runs. [`Lease::release`] waits until the lock is released.
///
/// # Limits
///
/// A process can be suspended for any time between a check of its lease and the write that the lease
/// guards. The store that is written to must therefore reject a [`Fence`] that is lower than the
/// highest it has seen.
///
/// ```no_run
/// # use adieu_fleet::{Lease, LeaseLost};
/// # async fn write(_: u64) {}
/// # async fn example(lease: Lease) -> Result<(), LeaseLost> {
/// lease
///     .guard(async {
///         write(lease.fence().get()).await; // such as: UPDATE … WHERE fence <= $1
///     })
///     .await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "the lock is released when the lease is dropped"]
pub struct Lease {
    pub(crate) shared: Arc<Shared>,
    /// Never sends. When the last clone of the lease is dropped, the channel closes, and the keeper
    /// releases the lock.
    alive: mpsc::Sender<Infallible>,
}

/// A lease was lost: another replica may hold the lock now or soon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost lock {key} (fence {fence}): {}", self.why())]
pub struct LeaseLost {
    /// The lock in question.
    pub key: Key,
    /// The fence of the lease. It must no longer be used.
    pub fence: Fence,
    /// Why the lease was lost.
    pub loss: LossCause,
}

/// Why a lock was not released, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease had been lost before.
    #[error("failed to release lock")]
    Lost(#[from] LeaseLost),
    /// The backend failed. The lock expires after its time to live.
    #[error("failed to release lock {key}; it expires after its time to live")]
    Backend {
        /// The lock in question.
        key: Key,
        /// The error of the backend.
        #[source]
        source: BackendError,
    },
    /// A clone of the lease still exists, or the backend has not responded yet. The lock is
    /// released, or expires, after that.
    #[error(
        "timed out releasing lock {key}: the lease is still in use, or the backend did not respond"
    )]
    TimedOut {
        /// The lock in question.
        key: Key,
    },
}

/// The state that the handles of a lease and its keeper share.
pub(crate) struct Shared {
    pub(crate) locks: Arc<dyn LockBackend>,
    pub(crate) claim: Claim,
    terms: Terms,
    origin: Instant,
    /// The end of the lease, in nanoseconds since `origin`. It only grows.
    valid: AtomicU64,
    lost: CancellationToken,
    loss: OnceLock<LossCause>,
    /// Fires when the keeper has ended; `end` is set before that.
    over: CancellationToken,
    end: OnceLock<End>,
}

/// How a lease ended.
#[derive(Clone, Debug)]
enum End {
    Released,
    Lost(LossCause),
    Unreleased(BackendError),
}

// === impl Lease ===

impl Lease {
    /// Starts to renew a lock that was requested at `sent` and granted.
    pub(crate) fn begin(
        locks: Arc<dyn LockBackend>,
        claim: Claim,
        terms: Terms,
        sent: Instant,
        keepers: &TaskTracker,
    ) -> Self {
        let beat = Heartbeat::new(terms, sent, fastrand::f64());
        let (alive, gone) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            locks,
            claim,
            terms,
            origin: sent,
            valid: AtomicU64::new(0),
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
            over: CancellationToken::new(),
            end: OnceLock::new(),
        });
        shared.extend(beat.valid_until());
        keepers.spawn(keeper::keep(Arc::clone(&shared), beat, gone));
        Self { shared, alive }
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.shared.claim.key
    }

    /// Returns the holder.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.shared.claim.owner
    }

    /// Returns the fence of this grant: higher than those of all earlier grants of the key, and
    /// unchanged by renewals.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.shared.claim.fence
    }

    /// Returns the claim that identifies the grant at the backend, for guarding other data in the
    /// same store.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.shared.claim
    }

    /// Returns a token that is cancelled when the lease is lost.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        // A child token: cancelling it does not affect the lease.
        self.shared.lost.child_token()
    }

    /// Checks by the clock whether the lease is still held. Call it before each write.
    ///
    /// # Errors
    ///
    /// If the lease is lost.
    pub fn check(&self) -> Result<Fence, LeaseLost> {
        self.shared.check(now()).map(|()| self.fence())
    }

    /// Returns whether the lease is still held, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns how long the lease stays valid if it is not renewed again.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.valid_until().saturating_duration_since(now())
    }

    /// Writes a small value beside the lock if the lock is still held. The backend checks that in
    /// the same step.
    ///
    /// # Errors
    ///
    /// If the lease is lost, by the clock or according to the backend, or the backend fails.
    pub async fn mark(&self, name: &str, value: &str) -> Result<(), MarkError> {
        self.check()?;
        let Shared { locks, claim, terms, .. } = &*self.shared;
        let answer = tokio::time::timeout(terms.ttl, locks.mark(claim, name, value)).await;
        match answer {
            Ok(Ok(ClaimStatus::Held)) => Ok(()),
            Ok(Ok(ClaimStatus::Lost)) => {
                self.shared.lose(LossCause::Refused);
                Err(self
                    .shared
                    .loss_of()
                    .unwrap_or_else(|| self.shared.as_lost(LossCause::Refused)))?
            }
            Ok(Err(source)) => Err(MarkError::Backend { key: self.key().clone(), source }),
            Err(_) => {
                let source = BackendError::no_response(locks.name(), "write a marker", terms.ttl);
                Err(MarkError::Backend { key: self.key().clone(), source })
            }
        }
    }

    /// Drops this handle, and waits until the lock is released, which happens after all clones of
    /// the lease are dropped.
    ///
    /// Dropping a lease does the same without the wait. Either way the lease is renewed while a
    /// clone of it exists.
    ///
    /// # Errors
    ///
    /// If the lease had been lost, the backend failed, or the lock is not released by the deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the handle is dropped by the call itself, so dropping the returned future
    /// changes nothing.
    pub fn release(
        self,
        until: Deadline,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static {
        let Self { shared, alive } = self;
        drop(alive);
        async move {
            let key = shared.claim.key.clone();
            tokio::select! {
                biased;
                () = shared.over.cancelled() => {}
                () = until.passed() => return Err(ReleaseError::TimedOut { key }),
            }
            match shared.end.get() {
                Some(End::Released) => Ok(()),
                Some(End::Lost(loss)) => Err(shared.as_lost(*loss).into()),
                Some(End::Unreleased(source)) => {
                    Err(ReleaseError::Backend { key, source: source.clone() })
                }
                None => Err(ReleaseError::TimedOut { key }),
            }
        }
    }
}

/// Why a marker was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The lease is lost.
    #[error("failed to write a marker")]
    Lost(#[from] LeaseLost),
    /// The backend failed. The marker may have been written.
    #[error("failed to write a marker beside lock {key}")]
    Backend {
        /// The lock in question.
        key: Key,
        /// The error of the backend.
        #[source]
        source: BackendError,
    },
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { key, owner, fence, ticket: _ } = &self.shared.claim;
        f.debug_struct("Lease")
            .field("key", key)
            .field("owner", owner)
            .field("fence", fence)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

// === impl LeaseLost ===

impl LeaseLost {
    fn why(&self) -> &'static str {
        match self.loss {
            LossCause::Expired => "the lease was not renewed in time",
            LossCause::Refused => "the backend no longer accepts its claim",
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn valid_until(&self) -> Instant {
        // Relaxed, here and below: no other data is published with the instant.
        self.origin + Duration::from_nanos(self.valid.load(Ordering::Relaxed))
    }

    fn extend(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.origin).as_nanos();
        self.valid.fetch_max(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Checks whether the lease is held at this time. Records the loss if it has expired.
    fn check(&self, now: Instant) -> Result<(), LeaseLost> {
        if self.loss.get().is_none() && now >= self.valid_until() {
            self.lose(LossCause::Expired);
        }
        self.loss_of().map_or(Ok(()), Err)
    }

    fn lose(&self, loss: LossCause) {
        if self.loss.set(loss).is_ok() {
            self.lost.cancel();
            journal::lease_lost(&self.claim, loss);
        }
    }

    fn loss_of(&self) -> Option<LeaseLost> {
        self.loss.get().map(|loss| self.as_lost(*loss))
    }

    fn as_lost(&self, loss: LossCause) -> LeaseLost {
        LeaseLost { key: self.claim.key.clone(), fence: self.claim.fence, loss }
    }
}
