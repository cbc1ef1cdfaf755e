//! The state that a fleet shares: its rate limits and breakers, and its replicas.
//!
//! Each question contains the figures of the limit or breaker, so replicas of two versions with
//! different figures can run at the same time. Answers contain durations, never times, because the
//! clocks of the replicas and of the store differ. A duration counts from when its question was sent.

mod board;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{Ended, Standing, Terms};
use crate::rate::{Gcra, Taken};

pub use memory::Memory;
#[cfg(feature = "redis")]
pub use redis::Redis;

/// A store that a fleet shares: made from a [`Memory`], or from a `Redis` with the feature `redis`.
#[derive(Clone)]
pub struct SharedStore(pub(crate) Arc<dyn Store>);

/// The answer of a store, which may take any time.
pub(crate) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The questions to a store. Each is answered as a whole or not at all. A question can be repeated
/// after its answer was lost.
pub(crate) trait Store: Send + Sync + 'static {
    /// Takes as many permits of a limit as are free, at most `wanted`.
    ///
    /// If the answer is lost, the permits are lost: the fleet admits less, never more.
    fn take<'a>(&'a self, key: &'a str, limit: Gcra, wanted: u32) -> Reply<'a, Taken>;

    /// Reports the observations of a replica, and returns the changes.
    fn sync<'a>(&'a self, service: &'a str, report: &'a Report) -> Reply<'a, Synced>;

    /// Requests to be the probe of an open breaker.
    fn probe<'a>(&'a self, service: &'a str, probe: &'a Probe) -> Reply<'a, Probed>;

    /// Returns a probe. The answer is the standing of the breaker after that.
    fn settle<'a>(&'a self, service: &'a str, settled: &'a Settled) -> Reply<'a, Option<Standing>>;

    /// Opens a policy by hand, for this long. Zero releases it.
    fn force<'a>(&'a self, service: &'a str, force: &'a Force) -> Reply<'a, ()>;

    /// Replaces a connection that may be broken without an error.
    fn reconnect(&self) -> Reply<'_, ()>;

    /// Returns whether there is a connection, which may be broken. Without one, the store is away.
    fn is_connected(&self) -> bool {
        true
    }
}

/// The report of a replica in one round trip.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) replica: Arc<str>,
    /// Whether the replica ends, and no longer counts.
    pub(crate) is_leaving: bool,
    /// The last epoch that the replica has received.
    pub(crate) epoch: u64,
    /// The forces that the replica knows of, in case the store has lost them.
    pub(crate) forces: Vec<(Arc<str>, Forced)>,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// The window of one breaker at a replica: the whole one, so a repeated or lost report does no
/// harm.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) breaker: Arc<str>,
    /// The generation of the fleet's breaker that the replica has received.
    pub(crate) generation: u64,
    /// Zero takes an earlier snapshot back, unless `is_open`.
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// Whether the replica has opened the breaker by its own calls, and the fleet has not.
    pub(crate) is_open: bool,
    pub(crate) terms: Terms,
    /// Varies the length of a break; from zero to one.
    pub(crate) spread: f64,
}

/// The changes since the epoch of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Synced {
    /// The epoch up to which the replica knows everything after this answer.
    pub(crate) epoch: u64,
    /// How many replicas have reported recently.
    pub(crate) replicas: u32,
    /// `None` if nothing has changed.
    pub(crate) news: Option<News>,
}

/// What has changed for the breakers of a service, in the order of the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Whether the first of these changes is the first that the store knows. What the replica has learnt
    /// before may be lost.
    pub(crate) is_from_start: bool,
    /// Whether more is to follow with the next answer.
    pub(crate) has_more: bool,
    pub(crate) breakers: Vec<(String, Standing)>,
    /// The remaining time for which a policy was forced open, and by whom. Zero if it was
    /// released.
    pub(crate) forces: Vec<(String, Forced)>,
}

/// The remaining time for which a policy is forced open, and the requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    pub(crate) left: Duration,
    pub(crate) by: String,
}

/// A request to be the probe of an open breaker.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) breaker: Arc<str>,
    /// Identifies the probe in the fleet.
    pub(crate) id: Arc<str>,
    pub(crate) terms: Terms,
}

/// The answer to a request to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// The call may probe.
    Granted {
        /// The generation of the fleet's breaker.
        generation: u64,
    },
    /// Other probes are running, for at most this long.
    Busy(Duration),
    /// The breaker does not wait for a probe. `None` if the store has no entry for it.
    Standing(Option<Standing>),
}

/// A probe that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) probe: Probe,
    pub(crate) generation: u64,
    pub(crate) ended: Ended,
    pub(crate) spread: f64,
}

/// A policy is forced open for this long, or released if it is zero.
#[derive(Clone, Debug)]
pub(crate) struct Force {
    pub(crate) policy: Arc<str>,
    pub(crate) time: Duration,
    pub(crate) by: String,
}

/// A store did not answer a question.
#[derive(Debug, thiserror::Error)]
#[error("{store} failed to {verb}{}", .advice.map(|advice| format!(": {advice}")).unwrap_or_default())]
pub struct StoreError {
    store: &'static str,
    verb: &'static str,
    /// What to do, if that is known.
    advice: Option<&'static str>,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

// === impl SharedStore ===

impl From<Memory> for SharedStore {
    fn from(memory: Memory) -> Self {
        Self(Arc::new(memory))
    }
}

impl std::fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStore").finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "redis"))]
mod tests;
