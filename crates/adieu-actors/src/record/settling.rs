//! How an actor that is about to end waits for its children, while a drain takes care of them.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use tokio::sync::SetOnce;

use crate::doors::Door;
use crate::timeouts::Timeouts;

/// Allocated when it is needed: most actors have no children.
#[derive(Debug, Default)]
pub(crate) struct Settling(OnceLock<Box<Steps>>);

#[derive(Debug, Default)]
struct Steps {
    /// The actor has nothing more to do, and ends as soon as
    reached: SetOnce<()>,
    /// its children have ended.
    released: SetOnce<()>,
}

// === impl Settling ===

impl Settling {
    fn steps(&self) -> &Steps {
        self.0.get_or_init(Box::default)
    }

    /// Whether the actor has come to its end and waits for its children.
    pub(crate) fn is_reached(&self) -> bool {
        self.0.get().is_some_and(|steps| steps.reached.initialized())
    }

    /// Resolves when the actor has come to its end and waits for its children.
    pub(crate) async fn reached(&self) {
        self.steps().reached.wait().await;
    }

    /// Waits until the children have ended, which closes the door. Not for ever: the drain that
    /// takes care of them may have been given up.
    pub(crate) async fn wait_for_release(&self, door: &Door) {
        let steps = self.steps();
        fence(Ordering::SeqCst); // Either `release` sees the steps, or this sees the closed door.
        if door.is_closed() {
            return;
        }
        let _ = steps.reached.set(());
        let _ = tokio::time::timeout(Timeouts::EVENT_SOURCED, steps.released.wait()).await;
    }

    /// The children have ended. To be called after the door has been closed.
    pub(crate) fn release(&self) {
        fence(Ordering::SeqCst);
        if let Some(steps) = self.0.get() {
            let _ = steps.released.set(());
        }
    }
}
