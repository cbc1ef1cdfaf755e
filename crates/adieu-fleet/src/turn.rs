//! Work that one replica at a time does: taking a turn, and how it can end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use adieu_core::Deadline;

use crate::lease::{Lease, Lost, MarkError};
use crate::lock::{AcquireError, Lock};
use crate::locks::{BackendError, BoxError, Marker};
use crate::names::{Key, NameError, Owner};

/// Why work that one replica does was not done, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// It needs fences, and the backend has none.
    #[error("failed to take turns at {key}: it needs fences, and {backend} has none")]
    Unfenced {
        /// The lock in question.
        key: Key,
        /// The backend in question.
        backend: &'static str,
    },
    /// The version is no name.
    #[error("failed to do {key} once")]
    Version {
        /// The lock in question.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: NameError,
    },
    /// Neither was the lock to be had in time, nor was the work done by somebody else.
    #[error("failed to get a turn at {key}")]
    NoTurn {
        /// The lock in question.
        key: Key,
        /// What was met.
        #[source]
        source: AcquireError,
    },
    /// The work failed. Somebody else may try.
    #[error("failed to do {key}")]
    Failed {
        /// The lock in question.
        key: Key,
        /// What it said.
        #[source]
        source: BoxError,
    },
    /// The lease was lost, and the work was dropped. Somebody else does it.
    #[error("failed to do {key} to its end")]
    Lost {
        /// The lock in question.
        key: Key,
        /// Why.
        #[source]
        source: Lost,
    },
    /// The work is done, but that could not be written down. Somebody else does it again, as a
    /// retry.
    #[error("failed to write down that {key} is done")]
    NotMarked {
        /// The lock in question.
        key: Key,
        /// Why.
        #[source]
        source: MarkError,
    },
}

/// How a turn ended, besides a panic.
pub(crate) enum End<T> {
    Done(T),
    Failed(BoxError),
    Lost(Lost),
}

impl Lock {
    pub(crate) fn must_have_fences(&self) -> Result<(), TurnError> {
        let locks = self.locks();
        if locks.has_fences() {
            return Ok(());
        }
        Err(TurnError::Unfenced { key: self.key().clone(), backend: locks.name() })
    }

    /// What was last written down under this name. Asks again while the backend is away.
    pub(crate) async fn marker_by(
        &self,
        name: &str,
        until: Deadline,
    ) -> Result<Option<Marker>, TurnError> {
        loop {
            let locks = self.locks();
            let patience = self.ttl().min(until.remaining());
            let asked = tokio::time::timeout(patience, locks.marker(self.key(), name)).await;
            let source = match asked {
                Ok(Ok(marker)) => return Ok(marker),
                Ok(Err(error)) => error,
                Err(_) => BackendError::no_answer(locks.name(), "read a marker", patience),
            };
            self.wait(until, AcquireError::Backend { key: self.key().clone(), source }).await?;
        }
    }

    /// Makes one attempt to get the lock, and returns the lease or why there is none.
    pub(crate) async fn turn_by(
        &self,
        owner: &Owner,
        until: Deadline,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        let attempt = self.try_acquire_as(owner.clone());
        tokio::time::timeout_at(until.instant(), attempt)
            .await
            .map_err(|_| self.no_turn(self.timed_out(None)))
    }

    /// As [`Lock::turn_by`], if no replica holds the lock. A query costs less than an attempt.
    pub(crate) async fn turn_if_free_by(
        &self,
        owner: &Owner,
        until: Deadline,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        match self.holder_by(until).await {
            Ok(Some(holder)) => Ok(Err(AcquireError::Held { key: self.key().clone(), holder })),
            Ok(None) => self.turn_by(owner, until).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Pauses before looking again, or says that there is no time for it.
    pub(crate) async fn wait(&self, until: Deadline, last: AcquireError) -> Result<(), TurnError> {
        let pause = self.pause();
        if until.remaining() <= pause {
            until.passed().await;
            return Err(self.no_turn(self.timed_out(Some(last))));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn no_turn(&self, source: AcquireError) -> TurnError {
        TurnError::NoTurn { key: self.key().clone(), source }
    }

    /// Writes something down. Tries again while the lease is held.
    pub(crate) async fn mark(
        &self,
        lease: &Lease,
        name: &str,
        value: &str,
    ) -> Result<(), MarkError> {
        loop {
            match lease.mark(name, value).await {
                Err(MarkError::Backend { .. }) if lease.is_held() => {
                    tokio::time::sleep(self.pause().min(self.ttl() / 10)).await;
                }
                ended => return ended,
            }
        }
    }

    /// Runs work under the lease. If it panics, the lock is released before the panic goes on.
    pub(crate) async fn run<T, E: Into<BoxError>>(
        &self,
        lease: &Lease,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<End<T>, Box<dyn Any + Send>> {
        Ok(match caught(lease.guard(work)).await? {
            Ok(Ok(done)) => End::Done(done),
            Ok(Err(error)) => End::Failed(error.into()),
            Err(lost) => End::Lost(lost),
        })
    }

    /// Gives the lock back, and waits for that as long as it makes sense. That it fails hides
    /// nothing else: it has been logged, and the lock ends by itself.
    pub(crate) async fn give_back(&self, lease: Lease) {
        let _ = lease.release(Deadline::after(self.ttl())).await;
    }
}

/// Awaits `work`, and returns a panic in it.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
