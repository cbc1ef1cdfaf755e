//! The data that a breaker exchanges with the other replicas of its fleet.

use std::sync::Arc;
use std::time::Duration;

use super::ended::Ended;

/// The figures of a breaker, which travel with each question about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) calls: u32,
    pub(crate) ratio: f64,
    pub(crate) witnesses: u32,
    pub(crate) opens_for: Duration,
    pub(crate) at_most: Duration,
    pub(crate) probes: u32,
    pub(crate) closes_after: u32,
    pub(crate) lease: Duration,
}

/// The state of a breaker for the whole fleet. The generation rises with each transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The fleet refuses calls for this long. If zero, replicas can request to probe.
    Open {
        generation: u64,
        left: Duration,
        reopenings: u32,
    },
    Closed {
        generation: u64,
    },
}

/// Takes what a breaker has to report. Never waits.
pub(crate) trait Fleet: Send + Sync {
    /// Requests a report now, because the state of the breaker has changed.
    fn nudge(&self);

    /// A probe of the fleet has ended.
    fn settle(&self, ticket: Ticket, ended: Ended);
}

/// A probe that the store has granted to a call of this process.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) id: Arc<str>,
    /// The generation of the fleet's breaker.
    pub(crate) generation: u64,
}

// === impl Standing ===

impl Standing {
    pub(crate) fn generation(self) -> u64 {
        match self {
            Self::Open { generation, .. } | Self::Closed { generation } => generation,
        }
    }
}
