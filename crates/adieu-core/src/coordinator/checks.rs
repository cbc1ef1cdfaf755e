//! The handles through which the application reports what it needs to be ready.

use std::fmt;
use std::sync::{Arc, Weak};

use super::shared::Shared;
use crate::readiness::CheckState;

/// A promise that something will be there before the process is ready: a connection, a cache, an
/// index.
///
/// Dropping it unkept means that it failed, so a panic in start-up never makes the process ready.
#[must_use = "a promise that is dropped without being kept counts as failed"]
pub struct Promise {
    pub(super) shared: Weak<Shared>,
    pub(super) id: u64,
    pub(super) kept: bool,
}

/// Says, for as long as the process lives, whether something is there that it cannot work without:
/// a database, a quorum, room on a disk.
///
/// It belongs to the component that it speaks for. Dropping it means that the component is gone, so
/// it counts as failed. For what must be there only once see [`Promise`].
#[must_use = "a check that is dropped counts as failed"]
pub struct CheckHandle {
    pub(super) shared: Weak<Shared>,
    pub(super) id: u64,
}

// === impl Promise ===

impl Promise {
    /// It is there.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            if self.kept {
                shared.settle(self.id, CheckState::Ready, None);
            } else {
                shared.abandon(self.id, None);
            }
        }
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}

// === impl CheckHandle ===

impl CheckHandle {
    /// It is there.
    pub fn ready(&self) {
        self.settle(CheckState::Ready, None);
    }

    /// It is not there, for now; `why` is shown by probes.
    pub fn failing(&self, why: impl Into<Arc<str>>) {
        self.settle(CheckState::Failed, Some(why.into()));
    }

    fn settle(&self, state: CheckState, detail: Option<Arc<str>>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.settle(self.id, state, detail);
        }
    }
}

impl Drop for CheckHandle {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.abandon(self.id, Some("nobody speaks for it any more".into()));
        }
    }
}

impl fmt::Debug for CheckHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckHandle").finish_non_exhaustive()
    }
}
