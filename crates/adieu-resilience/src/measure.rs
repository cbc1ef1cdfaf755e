//! Items for the benches, which applications must not use. Not part of the public API.

use crate::breaker::{Breaker, Circuit, Ended, Prober};
use crate::time::{Instant, now, roughly_now};

/// A breaker that is closed, without the policy around it.
pub struct ClosedBreaker {
    circuit: Circuit,
    began: Instant,
}

// === impl ClosedBreaker ===

impl ClosedBreaker {
    /// Builds a breaker.
    #[must_use]
    pub fn new(breaker: &Breaker) -> Self {
        let now = now();
        Self { circuit: breaker.build(now, None, |_| {}), began: now }
    }

    /// Admits a call and counts its success. Returns whether the call was admitted.
    ///
    /// A closed breaker needs no time to admit a call, so the clock is read once, when the call ends: its
    /// outcome belongs to a bucket of the window.
    #[inline]
    pub fn admit_and_settle(&self) -> bool {
        match self.circuit.admit(self.began, || Prober::Process) {
            Ok(admission) => {
                admission.settle(roughly_now(), Ended::Succeeded);
                true
            }
            Err(_) => false,
        }
    }
}

impl std::fmt::Debug for ClosedBreaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClosedBreaker").finish_non_exhaustive()
    }
}
