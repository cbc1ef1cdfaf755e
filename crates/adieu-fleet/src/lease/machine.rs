//! Decides when a lease is renewed and when it is given up. Pure: the time and the results of
//! requests come in.
//!
//! # Invariants
//!
//! 1. A lease counts from the instant at which its last successful request was *sent*. The backend
//!    cannot have granted it earlier, so it lasts there at least as long as it does here.
//! 2. A lease that has expired stays expired: a response that arrives later does not extend it.
//!
//! The heartbeat does not store a loss; its caller does. After a loss, the caller must not use the
//! heartbeat again.

use std::time::{Duration, Instant};

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// It was not renewed in time: the backend did not respond, or this process did not run.
    Expired,
    /// The backend reports that the claim no longer holds the lock.
    Refused,
}

/// How long a lease lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// How long before the end of `ttl` the lease is given up, to allow for clock drift and for
    /// late scheduling.
    pub(crate) margin: Duration,
}

/// The renewals of one lease.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    terms: Terms,
    /// When the last successful request was sent.
    proven: Instant,
    /// When to renew next.
    next: Instant,
}

/// The result of a request to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Renewed,
    Refused,
    /// The request failed, or there was no response in time.
    None,
}

/// The next step for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(Instant),
    /// Request a renewal, and wait at most this long for the response.
    Renew(Duration),
    GiveUp(LossCause),
}

// === impl Terms ===

impl Terms {
    /// Returns when a lease whose last successful request was sent at `sent` must be given up.
    pub(crate) fn valid_until(self, sent: Instant) -> Instant {
        sent + (self.ttl - self.margin)
    }

    /// Returns how long work may continue after that before it is dropped. This is half of the
    /// margin; the other half allows for late scheduling.
    pub(crate) fn grace(self) -> Duration {
        self.margin / 2
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Creates the heartbeat of a lease that was requested at `sent` and granted. `splay` is a
    /// random number from 0 to 1.
    pub(crate) fn new(terms: Terms, sent: Instant, splay: f64) -> Self {
        let next = sent + Self::pause(terms, splay);
        Self { terms, proven: sent, next }
    }

    /// Returns a third of the time to live, plus or minus a quarter of that.
    fn pause(terms: Terms, splay: f64) -> Duration {
        (terms.ttl / 3).mul_f64(0.75 + splay / 2.0)
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.terms.valid_until(self.proven)
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        let left = self.valid_until().saturating_duration_since(now);
        if left.is_zero() {
            Next::GiveUp(LossCause::Expired)
        } else if now < self.next {
            Next::Wait(self.next.min(self.valid_until()))
        } else {
            Next::Renew(left.min(self.terms.ttl / 3))
        }
    }

    /// Records the result of a request that was sent at `sent`. Returns the loss if the lease is
    /// lost.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        sent: Instant,
        answer: Answer,
        splay: f64,
    ) -> Option<LossCause> {
        let left = self.valid_until().saturating_duration_since(now);
        if left.is_zero() {
            // Too late, whatever the answer: work may have been cancelled already.
            return Some(LossCause::Expired);
        }
        match answer {
            Answer::Refused => return Some(LossCause::Refused),
            Answer::Renewed => {
                self.proven = self.proven.max(sent);
                self.next = sent + Self::pause(self.terms, splay);
            }
            Answer::None => {
                let pause = (self.terms.ttl / 20).mul_f64(0.5 + splay);
                // Short enough to leave time for one more attempt before the lease expires.
                self.next = now + pause.min((left / 2).max(self.terms.ttl / 100));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
