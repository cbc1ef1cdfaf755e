//! Work that one replica at a time does: taking a turn, and how it can end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use adieu_core::Deadline;

use crate::lease::{Lease, Lost, MarkError};
use crate::lock::{AcquireError, Lock};
use crate::locks::{BoxError, Marker, Reply};
use crate::names::{Key, NameError, Owner, checked};
use crate::time::{Instant, now};

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

/// A wait for a turn: its end, and what the last attempt met.
pub(crate) struct Waiting<'a> {
    lock: &'a Lock,
    until: Deadline,
    met: Option<AcquireError>,
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

    pub(crate) fn must_know_version(&self, version: &str) -> Result<(), TurnError> {
        checked("a version", version)
            .map(drop)
            .map_err(|source| TurnError::Version { key: self.key().clone(), source })
    }

    pub(crate) fn no_turn(&self, source: AcquireError) -> TurnError {
        TurnError::NoTurn { key: self.key().clone(), source }
    }

    /// Writes something down. Tries again while the lease is held and the error may go away.
    pub(crate) async fn mark(
        &self,
        lease: &Lease,
        name: &str,
        value: &str,
    ) -> Result<(), MarkError> {
        loop {
            match lease.mark(name, value).await {
                Err(MarkError::Backend { source, .. })
                    if lease.is_held() && !source.is_permanent() =>
                {
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

// === impl Waiting ===

impl<'a> Waiting<'a> {
    pub(crate) fn new(lock: &'a Lock, until: Deadline) -> Self {
        Self { lock, until, met: None }
    }

    /// Returns what was last written under this name. Retries while the backend is away.
    pub(crate) async fn marker(&mut self, name: &str) -> Result<Option<Marker>, TurnError> {
        const VERB: &str = "read a marker";
        loop {
            match self.ask(VERB, self.lock.locks().marker(self.lock.key(), name)).await? {
                Ok(marker) => return Ok(marker),
                Err(met) => self.pause(met).await?,
            }
        }
    }

    /// Makes one attempt to get the lock, and returns the lease or why there is none.
    pub(crate) async fn turn(
        &mut self,
        owner: &Owner,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        let asked = now();
        let attempt = self.lock.try_acquire_as(owner.clone());
        match tokio::time::timeout_at(self.until.instant(), attempt).await {
            Ok(Err(error)) if error.is_permanent() => Err(self.lock.no_turn(error)),
            Ok(attempt) => Ok(attempt),
            Err(_) => Err(self.too_late("acquire a lease", asked)),
        }
    }

    /// As [`Waiting::turn`], if no replica holds the lock. A query costs less than an attempt.
    pub(crate) async fn turn_if_free(
        &mut self,
        owner: &Owner,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        const VERB: &str = "look at a lease";
        let key = self.lock.key();
        match self.ask(VERB, self.lock.locks().query(key)).await? {
            Ok(Some(holder)) => Ok(Err(AcquireError::Held { key: key.clone(), holder })),
            Ok(None) => self.turn(owner).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Pauses before the next attempt; fails if no time is left for one.
    pub(crate) async fn pause(&mut self, met: AcquireError) -> Result<(), TurnError> {
        let pause = self.lock.pause();
        if self.until.remaining() <= pause {
            self.until.passed().await;
            return Err(self.lock.no_turn(self.lock.timed_out(Some(met))));
        }
        self.met = Some(met);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Makes one request, and waits for the answer until the deadline, and no longer than the time
    /// to live.
    async fn ask<T>(
        &mut self,
        verb: &'static str,
        request: Reply<'_, T>,
    ) -> Result<Result<T, AcquireError>, TurnError> {
        let asked = now();
        let patience = self.lock.ttl().min(self.until.remaining());
        match tokio::time::timeout(patience, request).await {
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(source)) => {
                let error = AcquireError::Backend { key: self.lock.key().clone(), source };
                if error.is_permanent() { Err(self.lock.no_turn(error)) } else { Ok(Err(error)) }
            }
            Err(_) if self.until.remaining().is_zero() => Err(self.too_late(verb, asked)),
            Err(_) => Ok(Err(self.lock.no_answer(verb, asked))),
        }
    }

    /// The deadline passed during a request. What an earlier attempt met says more than that the
    /// rest of the time was too short for an answer.
    fn too_late(&mut self, verb: &'static str, asked: Instant) -> TurnError {
        let met = self.met.take().unwrap_or_else(|| self.lock.no_answer(verb, asked));
        self.lock.no_turn(self.lock.timed_out(Some(met)))
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
