//! What a fleet shares. So far: the state of rate limits.
//!
//! Policies do not use stores yet. Numbers travel with each question, so replicas of two versions with
//! different rates live side by side.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use crate::rate::{Gcra, Taken};

/// Keeps what a fleet shares.
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

/// A store did not answer a question.
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
