//! What the benches measure and applications cannot call. Not part of the public API.

use crate::breaker::{Breaker, Circuit, Ended, Prober};
use crate::time::{Instant, now};

/// A breaker that is closed, without the policy around it.
pub struct ClosedBreaker {
    circuit: Circuit,
    now: Instant,
}

// === impl ClosedBreaker ===

impl ClosedBreaker {
    /// Builds a breaker.
    #[must_use]
    pub fn new(breaker: &Breaker) -> Self {
        let now = now();
        Self { circuit: breaker.build(now, None, |_| {}), now }
    }

    /// Admits a call and counts its success, at a time that the policy has read already. Returns whether
    /// the call was admitted.
    #[inline]
    pub fn admit_and_settle(&self) -> bool {
        match self.circuit.admit(self.now, || Prober::Process) {
            Ok(admission) => {
                admission.settle(self.now, Ended::Succeeded);
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
