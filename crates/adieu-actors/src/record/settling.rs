//! How an actor that is about to end waits for its children, while a drain stops them.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use tokio::sync::SetOnce;

use crate::admission::Admission;
use crate::timeouts::Timeouts;

/// Allocated on first use: most actors have no children.
#[derive(Debug, Default)]
pub(crate) struct Settling(OnceLock<Box<SettleSignals>>);

#[derive(Debug, Default)]
struct SettleSignals {
    /// The actor has no work left, and waits for `released`.
    reached: SetOnce<()>,
    /// The children have ended, so the actor may end.
    released: SetOnce<()>,
}

// === impl Settling ===

impl Settling {
    fn signals(&self) -> &SettleSignals {
        self.0.get_or_init(Box::default)
    }

    /// Returns whether the actor has no work left and waits for its children.
    pub(crate) fn is_reached(&self) -> bool {
        self.0.get().is_some_and(|steps| steps.reached.initialized())
    }

    /// Waits until the actor has no work left and waits for its children.
    pub(crate) async fn reached(&self) {
        self.signals().reached.wait().await;
    }

    /// Waits until the children have ended, which closes admission. The wait is bounded, because the
    /// drain that stops the children may have been dropped.
    pub(crate) async fn wait_for_release(&self, admission: &Admission) {
        let steps = self.signals();
        // Either `release` observes the steps, or this observes that admission is closed.
        fence(Ordering::SeqCst);
        if admission.is_closed() {
            return;
        }
        let _ = steps.reached.set(());
        let _ = tokio::time::timeout(Timeouts::EVENT_SOURCED, steps.released.wait()).await;
    }

    /// Lets the actor end: its children have ended. Admission must have been closed before.
    pub(crate) fn release(&self) {
        fence(Ordering::SeqCst);
        if let Some(steps) = self.0.get() {
            let _ = steps.released.set(());
        }
    }
}
