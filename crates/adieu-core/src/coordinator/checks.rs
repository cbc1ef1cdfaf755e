//! The handles with which the application reports the conditions of its readiness.

use std::fmt;
use std::sync::{Arc, Weak};

use super::shared::Shared;
use crate::readiness::CheckState;

/// A condition that must be met once before the process is ready: a connection, a cache, an index.
///
/// A promise that is dropped without being kept has failed, so a panic in start-up never makes the
/// process ready.
#[must_use = "a promise that is dropped without being kept counts as failed"]
pub struct Promise {
    pub(super) shared: Weak<Shared>,
    pub(super) id: u64,
    pub(super) kept: bool,
}

/// Reports, for as long as the process lives, whether something is available without which the process
/// cannot work: a database, a quorum, space on a disk.
///
/// The component that reports owns the handle. If the handle is dropped, the check has failed. For
/// conditions that must be met only once see [`Promise`].
#[must_use = "a check that is dropped counts as failed"]
pub struct CheckHandle {
    pub(super) shared: Weak<Shared>,
    pub(super) id: u64,
}

// === impl Promise ===

impl Promise {
    /// Keeps the promise: the condition is met.
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
    /// Reports that the check succeeds.
    pub fn mark_ready(&self) {
        self.settle(CheckState::Ready, None);
    }

    /// Reports that the check fails. Probes show `why`.
    pub fn mark_failed(&self, why: impl Into<Arc<str>>) {
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
            shared.abandon(self.id, Some("the handle of this check was dropped".into()));
        }
    }
}

impl fmt::Debug for CheckHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckHandle").finish_non_exhaustive()
    }
}
