//! A lock that is held: renewed while anybody works under it, and released after that.

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

pub use machine::Loss;
use machine::{Heartbeat, Terms};

use crate::locks::{BackendError, Claim, Fence, Locks, Standing};
use crate::names::{Key, Owner};
use crate::time::{Duration, Instant, now};

/// A lock that is held.
///
/// It is renewed in the background at about a third of its time to live. If that does not succeed
/// it is given up a margin before anybody else could have it: [`Lease::lost`] fires, and what runs
/// in [`Lease::guard`] is dropped.
///
/// Clones stand for the same lease. It is released when the last of them is gone, so whoever works
/// under it should hold one: the lock is then never released beneath him. See [`Lease::release`]
/// for waiting until it is.
///
/// # What it does not protect from
///
/// A process may be suspended, for any time, between a look at its lease and the write that it
/// guards. What is guarded must therefore refuse a [`Fence`] that is lower than one it has seen.
///
/// ```no_run
/// # use adieu_fleet::{Lease, Lost};
/// # async fn write(_: u64) {}
/// # async fn example(lease: Lease) -> Result<(), Lost> {
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
    /// Never sent on: that all of them are gone is the message.
    alive: mpsc::Sender<Infallible>,
}

/// The lease has been lost: somebody else may hold the lock, or soon will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost lock {key} (fence {fence}): {}", self.why())]
pub struct Lost {
    /// The lock in question.
    pub key: Key,
    /// Its fence, which must not be used any more.
    pub fence: Fence,
    /// Why.
    pub loss: Loss,
}

/// Why it cannot be said that a lock was released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It had been lost before.
    #[error("failed to release lock")]
    Lost(#[from] Lost),
    /// The backend did not do it. The lock ends with its time to live.
    #[error("failed to release lock {key}; it ends by itself")]
    Backend {
        /// The lock in question.
        key: Key,
        /// What it said.
        #[source]
        source: BackendError,
    },
    /// Somebody still works under it, or the backend has not answered yet. It is released, or
    /// ends, after that.
    #[error("failed to release lock {key} in time: somebody works under it, or nobody answers")]
    TimedOut {
        /// The lock in question.
        key: Key,
    },
}

/// What everybody knows of a lease.
pub(crate) struct Shared {
    pub(crate) locks: Arc<dyn Locks>,
    pub(crate) claim: Claim,
    terms: Terms,
    origin: Instant,
    /// Until when it is good, in nanoseconds since `origin`. Only ever later.
    valid: AtomicU64,
    lost: CancellationToken,
    loss: OnceLock<Loss>,
    /// Fires when all is over, and `end` is known.
    over: CancellationToken,
    end: OnceLock<End>,
}

/// How it ended.
#[derive(Clone, Debug)]
enum End {
    Released,
    Lost(Loss),
    Unreleased(BackendError),
}

// === impl Lease ===

impl Lease {
    /// Begins to renew a lock that was asked for at `sent`, and granted.
    pub(crate) fn begin(
        locks: Arc<dyn Locks>,
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

    /// What is locked.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.shared.claim.key
    }

    /// Who holds it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.shared.claim.owner
    }

    /// Which grant of this key it is: higher than all before, and the same for as long as the lease
    /// lives.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.shared.claim.fence
    }

    /// What the backend knows it by, for guarding other things in the same store.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.shared.claim
    }

    /// Fires when the lease has been lost.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        // A child: whoever cancels it has not lost the lease.
        self.shared.lost.child_token()
    }

    /// Looks at the clock, right now: is it still held? To be asked before each write.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn check(&self) -> Result<Fence, Lost> {
        self.shared.check(now()).map(|()| self.fence())
    }

    /// Whether it is still held, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// How long it is good for if it is not renewed again.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.valid_until().saturating_duration_since(now())
    }

    /// Writes a small value beside the lock, if the lock is still held: decided where the lock is
    /// stored.
    ///
    /// # Errors
    ///
    /// If the lease is lost, by the clock or by what the backend says, or the backend fails.
    pub async fn mark(&self, name: &str, value: &str) -> Result<(), MarkError> {
        self.check()?;
        let Shared { locks, claim, terms, .. } = &*self.shared;
        let answer = tokio::time::timeout(terms.ttl, locks.mark(claim, name, value)).await;
        match answer {
            Ok(Ok(Standing::Held)) => Ok(()),
            Ok(Ok(Standing::Lost)) => {
                self.shared.lose(Loss::Refused);
                Err(self.shared.loss_of().unwrap_or_else(|| self.shared.as_lost(Loss::Refused)))?
            }
            Ok(Err(source)) => Err(MarkError::Backend { key: self.key().clone(), source }),
            Err(_) => {
                let source = BackendError::no_answer(locks.name(), "write a marker", terms.ttl);
                Err(MarkError::Backend { key: self.key().clone(), source })
            }
        }
    }

    /// Releases the lock, after everybody who holds a clone of this lease has dropped it.
    ///
    /// Dropping a lease does the same, without anybody who waits for it. Either way the lock is
    /// renewed for as long as there is somebody.
    ///
    /// # Errors
    ///
    /// If the lease had been lost, the backend failed, or it is not over by then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once called, dropping the wait changes nothing.
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

/// Why a value was not written beside a lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The lease is lost.
    #[error("failed to write a marker")]
    Lost(#[from] Lost),
    /// The backend failed; it may have been written.
    #[error("failed to write a marker beside lock {key}")]
    Backend {
        /// The lock in question.
        key: Key,
        /// What it said.
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

// === impl Lost ===

impl Lost {
    fn why(&self) -> &'static str {
        match self.loss {
            Loss::Expired => "it could not be renewed in time",
            Loss::Refused => "it is not ours any more",
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn valid_until(&self) -> Instant {
        // Relaxed, here and below: the instant is all there is to know.
        self.origin + Duration::from_nanos(self.valid.load(Ordering::Relaxed))
    }

    fn extend(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.origin).as_nanos();
        self.valid.fetch_max(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it is held at this time. Whoever sees first that it is not, says so to all.
    fn check(&self, now: Instant) -> Result<(), Lost> {
        if self.loss.get().is_none() && now >= self.valid_until() {
            self.lose(Loss::Expired);
        }
        self.loss_of().map_or(Ok(()), Err)
    }

    fn lose(&self, loss: Loss) {
        if self.loss.set(loss).is_ok() {
            let Claim { key, fence, .. } = &self.claim;
            self.lost.cancel();
            adieu_core::adapter::log_aside(tracing::Level::WARN, || {
                let (key, fence) = (key.clone(), *fence);
                move || tracing::warn!(%key, %fence, ?loss, "lease lost")
            });
        }
    }

    fn loss_of(&self) -> Option<Lost> {
        self.loss.get().map(|loss| self.as_lost(*loss))
    }

    fn as_lost(&self, loss: Loss) -> Lost {
        Lost { key: self.claim.key.clone(), fence: self.claim.fence, loss }
    }
}
