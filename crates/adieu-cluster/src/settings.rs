//! The times of a cluster.

use std::time::Duration;

use crate::allocate::Limits;

/// The times and limits by which a node decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long a session lasts without being kept.
    pub(crate) ttl: Duration,
    /// How much earlier than that a node stops acting.
    pub(crate) margin: Duration,
    /// How long the leader waits after a node has vanished without having left.
    pub(crate) removal_margin: Duration,
    /// How long a node must have been ready before it is preferred.
    pub(crate) settle: Duration,
    /// How long membership must have been the same before shards move for balance alone.
    pub(crate) calm: Duration,
    /// How long a shard stays after a move.
    pub(crate) rest: Duration,
    pub(crate) limits: Limits,
    /// How long the departure of a node stays in the table.
    pub(crate) remember_gone: Duration,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings for sessions of this length.
    pub(crate) fn for_ttl(ttl: Duration) -> Self {
        let margin = ttl / 5;
        Self {
            ttl,
            margin,
            removal_margin: margin,
            settle: ttl.mul_f64(0.3),
            calm: Duration::from_secs(60),
            rest: Duration::from_secs(300),
            limits: Limits { moves: 20, percent: 10 },
            remember_gone: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Returns how often the leader writes its beat, so that a watch that hangs is noticed.
    pub(crate) fn beat(&self) -> Duration {
        self.ttl / 2
    }
}
