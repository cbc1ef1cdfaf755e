//! The state with which an actor of kameo stops its children at its end.

use std::sync::{Mutex, MutexGuard};

use ::kameo::Actor;
use ::kameo::actor::ActorRef;
use adieu_core::adapter::lock;
use tokio::sync::OnceCell;

/// The child stopper of an actor, and a reference to the actor while it may be about to end.
pub(super) struct Children<A: Actor> {
    /// Set when the actor supervises a child stopper.
    is_supervised: OnceCell<()>,
    /// The actor itself, after a panic: kameo does not wait for supervised actors if no reference
    /// exists.
    parent: Mutex<Option<ActorRef<A>>>,
}

// === impl Children ===

impl<A: Actor> Children<A> {
    /// Calls `spawn` once, which makes the actor supervise a child stopper.
    pub(super) async fn supervise<F: Future<Output = ()>>(&self, spawn: impl FnOnce() -> F) {
        self.is_supervised.get_or_init(spawn).await;
    }

    /// Keeps a reference to the actor until [`release`](Self::release). Returns false if the actor has
    /// no child stopper, which would release it.
    pub(super) fn keep(&self, actor: &ActorRef<A>) -> bool {
        let is_supervised = self.is_supervised.initialized();
        if is_supervised {
            *self.parent() = Some(actor.clone());
        }
        is_supervised
    }

    /// Drops the reference, after the lock was released: its destructor may run code of the user.
    pub(super) fn release(&self) {
        let parent = self.parent().take();
        drop(parent);
    }

    fn parent(&self) -> MutexGuard<'_, Option<ActorRef<A>>> {
        lock(&self.parent)
    }
}

impl<A: Actor> Default for Children<A> {
    fn default() -> Self {
        Self { is_supervised: OnceCell::new(), parent: Mutex::new(None) }
    }
}
