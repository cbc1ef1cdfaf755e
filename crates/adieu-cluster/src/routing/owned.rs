//! The key of a request, as the handler on its owner gets it.

use std::fmt;
use std::sync::Arc;

use adieu_fleet::Fence;
use tokio_util::sync::CancellationToken;

use crate::entity::{Here, Inside};
use crate::singleton::Displaced;

/// The key of a request, as an extension of the request, on the node that owns it.
///
/// While the handler runs and its response body is sent, the shard of the key is not handed over. A
/// clone that outlives them does not hold it.
#[derive(Clone)]
pub struct OwnedKey {
    key: Arc<str>,
    fence: Fence,
    closing: CancellationToken,
    here: Arc<Here>,
}

// === impl OwnedKey ===

impl OwnedKey {
    pub(super) fn of(inside: &Inside) -> Self {
        Self {
            key: Arc::clone(&inside.key),
            fence: Fence::new(inside.epoch.get()),
            closing: inside.closing.clone(),
            here: Arc::clone(&inside.here),
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the fence of the shard, which is higher than that of every owner before. The resource
    /// that the handler writes to must reject a fence that is lower than one it has seen.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Waits until the shard is to be handed over. A response that streams for a long time should end
    /// then.
    pub async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Checks by the clock whether this node may still act. Code that does not await must call this
    /// before each write.
    ///
    /// # Errors
    ///
    /// If this node may no longer act.
    pub fn check(&self) -> Result<Fence, Displaced> {
        let displaced = || Displaced { name: Arc::clone(&self.key), fence: self.fence };
        self.here.is_good().then_some(self.fence).ok_or_else(displaced)
    }
}

impl fmt::Debug for OwnedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedKey")
            .field("key", &self.key)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
