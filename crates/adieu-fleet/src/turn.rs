//! Turns at work that one replica at a time does: waiting for a turn, running the work, recording
//! its end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use adieu_core::Deadline;

use crate::lease::{Lease, LeaseLost, MarkError};
use crate::lock::{AcquireError, Lock};
use crate::lock_backend::{BoxError, Marker, Reply};
use crate::names::{Key, NameError, Owner, checked};
use crate::time::{Instant, now};

/// Why a replica's turn failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The backend has no fences, which turns need.
    #[error(
        "failed to run work under lock {key}: backend {backend} has no fences; use another backend"
    )]
    Unfenced {
        /// The lock in question.
        key: Key,
        /// The backend in question.
        backend: &'static str,
    },
    /// The version is not a valid name.
    #[error("failed to run work under lock {key}")]
    Version {
        /// The lock in question.
        key: Key,
        /// Why it is not valid.
        #[source]
        source: NameError,
    },
    /// The lock could not be acquired in time, and no other replica completed the work.
    #[error("failed to acquire lock {key} for the work")]
    NoTurn {
        /// The lock in question.
        key: Key,
        /// The error of the last attempt.
        #[source]
        source: AcquireError,
    },
    /// The work failed. Another replica may try.
    #[error("work under lock {key} failed")]
    Failed {
        /// The lock in question.
        key: Key,
        /// The error of the work.
        #[source]
        source: BoxError,
    },
    /// The lease was lost, and the work was cancelled. Another replica takes over.
    #[error("work under lock {key} was cancelled")]
    Lost {
        /// The lock in question.
        key: Key,
        /// Why the lease was lost.
        #[source]
        source: LeaseLost,
    },
    /// The work is done, but that could not be recorded. Another replica repeats it, as a retry.
    #[error("failed to record that {key} is done")]
    NotMarked {
        /// The lock in question.
        key: Key,
        /// Why the marker was not written.
        #[source]
        source: MarkError,
    },
}

/// A wait for a turn, with its deadline and the error of the last attempt.
pub(crate) struct Waiting<'a> {
    lock: &'a Lock,
    until: Deadline,
    last: Option<AcquireError>,
}

impl Lock {
    pub(crate) fn check_fences(&self) -> Result<(), TurnError> {
        let locks = self.locks();
        if locks.has_fences() {
            return Ok(());
        }
        Err(TurnError::Unfenced { key: self.key().clone(), backend: locks.name() })
    }

    pub(crate) fn check_version(&self, version: &str) -> Result<(), TurnError> {
        checked("a version", version)
            .map(drop)
            .map_err(|source| TurnError::Version { key: self.key().clone(), source })
    }

    pub(crate) fn no_turn(&self, source: AcquireError) -> TurnError {
        TurnError::NoTurn { key: self.key().clone(), source }
    }

    /// Writes a marker. Retries while the lease is held, except after a permanent error.
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

    /// Runs work under the lease, writes a marker if the work succeeds, and releases the lock. Returns
    /// whether the marker was written. A panic of the work is resumed after the lock was released.
    pub(crate) async fn run<T, E: Into<BoxError>>(
        &self,
        lease: Lease,
        work: impl Future<Output = Result<T, E>>,
        (name, value): (&str, &str),
    ) -> Result<(T, Result<(), MarkError>), TurnError> {
        let ended = catch_panic(lease.guard(work)).await;
        let key = self.key().clone();
        let ended = match ended {
            Ok(Ok(Ok(done))) => Ok(Ok((done, self.mark(&lease, name, value).await))),
            Ok(Ok(Err(error))) => Ok(Err(TurnError::Failed { key, source: error.into() })),
            Ok(Err(source)) => Ok(Err(TurnError::Lost { key, source })),
            Err(panic) => Err(panic),
        };
        self.release(lease).await;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Releases the lock, and waits for that until it would have expired anyway. An error is not
    /// returned, because it must not hide the result of the work; the keeper has logged it.
    pub(crate) async fn release(&self, lease: Lease) {
        let _ = lease.release(Deadline::after(self.ttl())).await;
    }
}

// === impl Waiting ===

impl<'a> Waiting<'a> {
    pub(crate) fn new(lock: &'a Lock, until: Deadline) -> Self {
        Self { lock, until, last: None }
    }

    /// Returns the marker with this name. Retries while the backend cannot be reached.
    pub(crate) async fn marker(&mut self, name: &str) -> Result<Option<Marker>, TurnError> {
        const VERB: &str = "read a marker";
        loop {
            match self.request(VERB, self.lock.locks().marker(self.lock.key(), name)).await? {
                Ok(marker) => return Ok(marker),
                Err(error) => self.pause(error).await?,
            }
        }
    }

    /// Makes one attempt to acquire the lock. Returns the lease, or why there is none.
    pub(crate) async fn turn(
        &mut self,
        owner: &Owner,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        let sent = now();
        let attempt = self.lock.try_acquire_as(owner.clone());
        match tokio::time::timeout_at(self.until.instant(), attempt).await {
            Ok(Err(error)) if error.is_permanent() => Err(self.lock.no_turn(error)),
            Ok(attempt) => Ok(attempt),
            Err(_) => Err(self.too_late("acquire a lease", sent)),
        }
    }

    /// Makes one attempt, as [`Waiting::turn`] does, if the lock is free. A query costs less than an
    /// attempt.
    pub(crate) async fn turn_if_free(
        &mut self,
        owner: &Owner,
    ) -> Result<Result<Lease, AcquireError>, TurnError> {
        const VERB: &str = "query a lease";
        let key = self.lock.key();
        match self.request(VERB, self.lock.locks().query(key)).await? {
            Ok(Some(holder)) => Ok(Err(AcquireError::Held { key: key.clone(), holder })),
            Ok(None) => self.turn(owner).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Pauses after this error, before the next attempt. Fails if no time is left for one.
    pub(crate) async fn pause(&mut self, error: AcquireError) -> Result<(), TurnError> {
        let pause = self.lock.pause();
        if self.until.remaining() <= pause {
            self.until.passed().await;
            return Err(self.lock.no_turn(self.lock.timed_out(Some(error))));
        }
        self.last = Some(error);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Makes one request. Waits for the response until the deadline, and no longer than the time to
    /// live.
    async fn request<T>(
        &mut self,
        verb: &'static str,
        request: Reply<'_, T>,
    ) -> Result<Result<T, AcquireError>, TurnError> {
        let sent = now();
        let patience = self.lock.ttl().min(self.until.remaining());
        match tokio::time::timeout(patience, request).await {
            Ok(Ok(response)) => Ok(Ok(response)),
            Ok(Err(source)) => {
                let error = AcquireError::Backend { key: self.lock.key().clone(), source };
                if error.is_permanent() { Err(self.lock.no_turn(error)) } else { Ok(Err(error)) }
            }
            Err(_) if self.until.remaining().is_zero() => Err(self.too_late(verb, sent)),
            Err(_) => Ok(Err(self.lock.no_response(verb, sent))),
        }
    }

    /// Returns the error for a deadline that passed during a request. The error of an earlier attempt
    /// is more useful than that the rest of the time was too short for a response.
    fn too_late(&mut self, verb: &'static str, sent: Instant) -> TurnError {
        let last = self.last.take().unwrap_or_else(|| self.lock.no_response(verb, sent));
        self.lock.no_turn(self.lock.timed_out(Some(last)))
    }
}

/// Awaits `work`, and returns its panic if it panics.
pub(crate) async fn catch_panic<T>(
    work: impl Future<Output = T>,
) -> Result<T, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
