//! The id and the fence of the entity that an actor is.

use std::fmt;
use std::sync::Arc;

use adieu_fleet::Fence;

use crate::entity::Here;
use crate::singleton::Displaced;

/// The entity that an actor is: its id and its fence. Passed to the function that creates the actor.
#[derive(Clone)]
pub struct EntityCx {
    pub(super) id: Arc<str>,
    pub(super) fence: Fence,
    pub(super) here: Arc<Here>,
}

// === impl EntityCx ===

impl EntityCx {
    /// Returns the key of the entity.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the fence of the shard, which is higher than that of every owner before. The resource
    /// that the actor writes to must reject a fence that is lower than one it has seen.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Checks by the clock whether the actor may still act. Code that does not await must call this
    /// before each write.
    ///
    /// # Errors
    ///
    /// If this node may no longer act.
    pub fn check(&self) -> Result<Fence, Displaced> {
        let displaced = || Displaced { name: Arc::clone(&self.id), fence: self.fence };
        self.here.is_good().then_some(self.fence).ok_or_else(displaced)
    }
}

impl fmt::Debug for EntityCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityCx")
            .field("id", &self.id)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
