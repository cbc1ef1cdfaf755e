//! Compares, at the end of a run, the work that was accepted with the work that was finished.
//!
//! Phases can be disabled, skipped or cut short, and with them the tasks that drain and report. So the
//! end does not rely on them: every source of work is asked which of its work no task has reported. A
//! report is clean only if none of them has any.

use std::sync::Arc;

use crate::task::Detail;

/// The sources of work that are not gates.
#[derive(Default)]
pub(super) struct Accounts(Vec<(Arc<str>, Account)>);

/// Returns the accepted work that is not finished and that no task of the shutdown has reported.
pub(super) type Account = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Accepted work of one source that was not finished.
#[derive(Clone)]
pub(super) struct Unfinished {
    pub(super) name: Arc<str>,
    /// Labels are code of the application, so the text is made on another thread.
    pub(super) what: Arc<Detail>,
}

// === impl Accounts ===

impl Accounts {
    pub(super) fn add(&mut self, name: Arc<str>, account: Account) {
        self.0.push((name, account));
    }

    pub(super) fn all(&self) -> Vec<(Arc<str>, Account)> {
        self.0.clone()
    }

    /// Takes the sources, to be dropped without the lock.
    pub(super) fn take(&mut self) -> Vec<(Arc<str>, Account)> {
        std::mem::take(&mut self.0)
    }
}
