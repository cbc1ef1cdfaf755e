//! The state that a fleet shares: so far, that of rate limits.
//!
//! Policies do not use stores yet. Each request contains the figures of its limit, so replicas of two
//! versions with different rates can run at the same time.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use crate::rate::{Gcra, Taken};

/// Stores the state that a fleet shares.
pub(crate) trait Store: Send + Sync + 'static {
    /// Takes as many permits of a limit as are free, at most `wanted`.
    ///
    /// If the answer is lost, the permits are lost: the fleet admits less, never more.
    fn take(
        &self,
        key: &str,
        limit: &Gcra,
        wanted: u32,
    ) -> impl Future<Output = Result<Taken, StoreError>> + Send;
}

/// A store did not answer a request.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} in {store}")]
pub(crate) struct StoreError {
    store: &'static str,
    verb: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

#[cfg(all(test, feature = "redis"))]
mod tests;
