//! An admitted call. A probe that is dropped without an outcome is returned.

use super::Circuit;
use super::ended::Ended;
use super::fleet::Ticket;
use super::machine::Probe;
use crate::time::{Duration, Instant};

/// A call that a breaker has admitted.
#[must_use = "a call that is not settled counts as neutral"]
pub(crate) struct Admission<'a> {
    circuit: &'a Circuit,
    generation: u32,
    probe: Option<Held>,
}

/// The probe that a call is.
pub(super) enum Held {
    /// This process has granted it.
    Own(Probe),
    /// The fleet has granted it.
    Fleet(Box<Ticket>),
}

// === impl Admission ===

impl<'a> Admission<'a> {
    #[inline]
    pub(super) fn new(circuit: &'a Circuit, generation: u32, probe: Option<Held>) -> Self {
        Self { circuit, generation, probe }
    }

    /// Returns whether a call that took this long counts as failed.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.circuit.is_slow(took)
    }

    /// Records that the call has ended.
    #[inline]
    pub(crate) fn settle(mut self, now: Instant, ended: Ended) {
        self.circuit.settle(now, self.generation, self.probe.take(), ended);
    }
}

impl Drop for Admission<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(probe) = self.probe.take() {
            let now = crate::time::now();
            self.circuit.settle(now, self.generation, Some(probe), Ended::Neutral);
        }
    }
}
