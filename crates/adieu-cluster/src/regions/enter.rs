//! Ownership of a shard alone, for work that comes over the application's own transport.

use std::fmt;
use std::sync::Arc;

use adieu_fleet::Fence;

use crate::entity::{Here, Pass};
use crate::grant::Grant;
use crate::records::{NodeId, ShardId};
use crate::singleton::Displaced;

/// Holds a shard: it is not handed over before the last pass was dropped. Created by
/// [`Region::enter`](super::Region::enter).
#[must_use = "dropping a pass allows that the shard is handed over"]
pub struct ShardPass {
    pass: Pass,
    shard: ShardId,
    here: Arc<Here>,
}

/// This node does not own the shard, or hands it over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} is not open on this node: {}", advice(node.as_ref(), *epoch))]
pub struct Elsewhere {
    /// The shard, such as `cart/17`.
    pub shard: String,
    /// The node that owns it, as far as this node has seen. That may be this node, while it hands the
    /// shard over.
    pub node: Option<NodeId>,
    /// The epoch of that node's ownership. It is also the fence.
    pub epoch: Option<u64>,
}

// === impl ShardPass ===

impl ShardPass {
    pub(super) fn new(pass: Pass, shard: ShardId, here: Arc<Here>) -> Self {
        Self { pass, shard, here }
    }

    /// Returns the fence of the shard, which is higher than that of every owner before.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::new(self.pass.epoch.get())
    }

    /// Waits until the shard is to be handed over. Finish soon after that, and drop the pass.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn closing(&self) {
        self.pass.closing().await;
    }

    /// Returns whether the shard is to be handed over.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.pass.is_closing()
    }

    /// Checks by the clock whether this node may still act. Call it before each write.
    ///
    /// # Errors
    ///
    /// If this node may no longer act.
    pub fn check(&self) -> Result<Fence, Displaced> {
        let name = || self.shard.to_string().into();
        let displaced = || Displaced { name: name(), fence: self.fence() };
        self.here.is_good().then(|| self.fence()).ok_or_else(displaced)
    }
}

impl fmt::Debug for ShardPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardPass")
            .field("shard", &self.shard.to_string())
            .field("fence", &self.fence())
            .field("is_closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}

// === impl Elsewhere ===

impl Elsewhere {
    pub(super) fn new(shard: ShardId, grant: &Grant) -> Self {
        let (node, epoch) = grant.owned().map(|(peer, epoch)| (peer.id.clone(), epoch)).unzip();
        Self { shard: shard.to_string(), node, epoch: epoch.map(|epoch| epoch.get()) }
    }
}

fn advice(node: Option<&NodeId>, epoch: Option<u64>) -> String {
    match (node, epoch) {
        (Some(node), Some(epoch)) => {
            format!("it belongs to {node} (fence {epoch}); send the work there, or try again")
        }
        _ => "no node owns it; try again".to_owned(),
    }
}
