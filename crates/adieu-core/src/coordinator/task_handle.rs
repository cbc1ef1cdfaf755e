//! Takes a task back.

use std::fmt;
use std::sync::Weak;

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
    /// Takes the task back while it is pending.
    ///
    /// Returns `true` if it will not run: it was pending, or has been cancelled before. Returns
    /// `false`, and interrupts nothing, once its phase has started or the shutdown is gone.
    #[expect(clippy::must_use_candidate, reason = "it also does something")]
    pub fn cancel(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| shared.cancel(self.phase, self.seq))
    }

    /// Whether the task has been taken back: through this handle, through a clone, or by
    /// [`Shutdown::cancel_tasks`](crate::Shutdown::cancel_tasks). `false` when the shutdown is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| shared.is_cancelled(self.phase, self.seq))
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
