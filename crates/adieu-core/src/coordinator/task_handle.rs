//! Cancels a task that was added.

use std::fmt;
use std::sync::{Arc, Weak};

use super::shared::Shared;
use crate::plan::PhaseId;

/// A task that was added. Clones refer to the same task. Dropping it changes nothing.
#[derive(Clone)]
pub struct TaskHandle {
    pub(super) shared: Weak<Shared>,
    pub(super) phase: PhaseId,
    pub(super) seq: u64,
}

// === impl TaskHandle ===

impl TaskHandle {
    /// Cancels the task if it is pending.
    ///
    /// Returns `true` if the task will not run: it was pending, or has been cancelled before. Returns
    /// `false`, and interrupts nothing, once its phase has started or the shutdown has been dropped.
    #[expect(clippy::must_use_candidate, reason = "it also changes something")]
    pub fn cancel(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| shared.cancel(self.phase, self.seq))
    }

    /// Returns whether the task has been cancelled: through this handle, through a clone, or by
    /// [`Shutdown::cancel_tasks`](crate::Shutdown::cancel_tasks). `false` if the shutdown has been
    /// dropped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let shared = self.shared.upgrade();
        let is_cancelled = |shared: &Arc<Shared>| {
            shared.core.lock().declared.registry.is_cancelled(self.phase, self.seq)
        };
        shared.as_ref().is_some_and(is_cancelled)
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
