//! When to renew a lease, and when to give it up. Pure: it is told the time and what happened.
//!
//! # Invariants
//!
//! 1. A lease counts from when its last successful request was *sent*: the backend cannot have
//!    granted it sooner, so it lasts at least as long there as it does here.
//! 2. Lost is for good.

use std::time::{Duration, Instant};

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// It could not be renewed in time: the backend was away, or we were.
    Expired,
    /// The backend says that it is not ours any more.
    Refused,
}

/// How long a lease lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// What is taken off at the end, for clocks that run apart and for being late.
    pub(crate) margin: Duration,
}

/// What is known of one lease.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    terms: Terms,
    /// When the last request was sent that succeeded.
    proven: Instant,
    next: Instant,
    loss: Option<Loss>,
}

/// How a request to renew ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Renewed,
    Refused,
    /// It failed, or nothing came.
    None,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(Instant),
    /// Ask to renew, and do not wait for longer than this for the answer.
    Renew(Duration),
    GiveUp(Loss),
}

// === impl Terms ===

impl Terms {
    /// When a lease that was proven at `sent` must be given up.
    pub(crate) fn valid_until(self, sent: Instant) -> Instant {
        sent + (self.ttl - self.margin)
    }

    /// How long, after that, work has to end by itself before it is dropped. Half of the margin:
    /// the other half is for being late.
    pub(crate) fn grace(self) -> Duration {
        self.margin / 2
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// A lease that was asked for at `sent`, and granted. `splay` is from zero to one.
    pub(crate) fn new(terms: Terms, sent: Instant, splay: f64) -> Self {
        let next = sent + Self::pause(terms, splay);
        Self { terms, proven: sent, next, loss: None }
    }

    /// A third of the time to live, give or take a quarter of that.
    fn pause(terms: Terms, splay: f64) -> Duration {
        (terms.ttl / 3).mul_f64(0.75 + splay / 2.0)
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.terms.valid_until(self.proven)
    }

    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if now >= self.valid_until() {
            self.loss.get_or_insert(Loss::Expired);
        }
        match self.loss {
            Some(loss) => Next::GiveUp(loss),
            None if now < self.next => Next::Wait(self.next.min(self.valid_until())),
            None => {
                let left = self.valid_until().saturating_duration_since(now);
                Next::Renew(left.min(self.terms.ttl / 3))
            }
        }
    }

    /// Takes in how a request that was sent at `sent` has ended.
    pub(crate) fn answered(&mut self, now: Instant, sent: Instant, answer: Answer, splay: f64) {
        if now >= self.valid_until() {
            // Too late, whatever the answer: work may have been told so.
            self.loss.get_or_insert(Loss::Expired);
        }
        match answer {
            Answer::Renewed if self.loss.is_none() => {
                self.proven = self.proven.max(sent);
                self.next = sent + Self::pause(self.terms, splay);
            }
            Answer::Refused => {
                self.loss.get_or_insert(Loss::Refused);
            }
            Answer::Renewed => {}
            Answer::None => {
                let pause = (self.terms.ttl / 20).mul_f64(0.5 + splay);
                // Not so long that the last chance to renew is slept through.
                let left = self.valid_until().saturating_duration_since(now);
                self.next = now + pause.min((left / 2).max(self.terms.ttl / 100));
            }
        }
    }
}

#[cfg(test)]
mod tests;
