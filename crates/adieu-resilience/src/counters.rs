//! The counters of a policy, for metrics.
//!
//! Only calls that are refused or repeated count here, and transitions of breakers. A call on the closed
//! path writes to nothing that another thread writes to.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::breaker::Change;
use crate::refused::Code;

/// The counters of one policy, over all keys.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    refused: [AtomicU64; Code::ALL.len()],
    retries: AtomicU64,
    opened: AtomicU64,
    fleet_opened: AtomicU64,
}

// === impl Counters ===

impl Counters {
    pub(crate) fn count_refusal(&self, code: Code) {
        let at = Code::ALL.iter().position(|known| *known == code);
        if let Some(counter) = at.and_then(|at| self.refused.get(at)) {
            add(counter);
        }
    }

    pub(crate) fn count_retry(&self) {
        add(&self.retries);
    }

    pub(crate) fn count_change(&self, change: Change) {
        match change {
            Change::Opened { .. } => add(&self.opened),
            Change::FleetOpened { .. } => add(&self.fleet_opened),
            Change::FleetFollowed | Change::HalfOpened | Change::Closed => {}
        }
    }

    /// Returns how many attempts were refused, by code.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (Code, u64)> {
        Code::ALL.iter().copied().zip(self.refused.iter().map(read))
    }

    pub(crate) fn retries(&self) -> u64 {
        read(&self.retries)
    }

    /// Returns how often a breaker of the policy was opened by this process, and how often by its fleet.
    pub(crate) fn opened(&self) -> [(&'static str, u64); 2] {
        [("process", read(&self.opened)), ("fleet", read(&self.fleet_opened))]
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
