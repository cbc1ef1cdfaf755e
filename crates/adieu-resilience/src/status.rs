//! The current state of a policy.

use std::sync::Arc;
use std::time::Duration;

/// The current state of a policy; see [`Policy::status`](crate::Policy::status).
///
/// Breaker and bulkhead are those of calls without a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyStatus {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The remaining time for which it was forced open.
    pub forced: Option<Duration>,
    /// The requester of the forced opening, if one was named.
    pub forced_by: Option<Arc<str>>,
    /// The state of its breaker, if it has one.
    pub breaker: Option<BreakerState>,
    /// The load of its bulkhead, if it has one.
    pub bulkhead: Option<BulkheadLoad>,
    /// How many keys have a state of their own.
    pub keys: usize,
    /// How many of these keys have a breaker that is not closed.
    pub open_keys: usize,
}

/// The store of shared policies; see [`Policies::store`](crate::Policies::store).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The name that the processes of the fleet share.
    pub service: Arc<str>,
    /// Whether the store does not answer, so that this process decides alone.
    pub is_away: bool,
    /// How many processes of the fleet were last seen, this one included.
    pub replicas: u32,
    /// How many calls a rate limit has decided without the store.
    pub decided_alone: u64,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls are refused.
    Open {
        /// For this long; zero if the next call probes the backend.
        left: Duration,
    },
    /// Single calls probe the backend.
    HalfOpen,
}

/// The load of a bulkhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkheadLoad {
    /// How many calls are inside.
    pub inside: usize,
    /// How many calls wait.
    pub waiting: usize,
    /// How many calls may be inside.
    pub limit: usize,
}
