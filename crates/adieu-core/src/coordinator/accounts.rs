//! Compares, at the end of a run, the work that was accepted with the work that was finished.
//!
//! Phases can be disabled, skipped or cut short, and with them the tasks that drain and report. So the
//! end does not rely on them: every source of work is asked which of its work no task has reported. A
//! report is clean only if none of them has any.

use std::sync::Arc;

use super::shared::Shared;
use crate::gate::Gate;
use crate::shield::shielded;
use crate::task::{Describe, Detail};

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
    /// Takes the sources, to be dropped without the lock.
    pub(super) fn take(&mut self) -> Vec<(Arc<str>, Account)> {
        std::mem::take(&mut self.0)
    }
}

// === impl Shared ===

impl Shared {
    /// Adds a source of work, which is asked when the run ends.
    pub(crate) fn account_for(
        &self,
        name: Arc<str>,
        unreported: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) {
        self.accounts.lock().0.push((name, Arc::new(unreported)));
    }

    /// Closes all gates, for good. Work that is admitted after the accounts were made would be lost.
    pub(super) fn close_gates(&self) {
        self.gates().iter().for_each(Gate::close);
    }

    /// Takes the accepted work that is not finished and that no task has reported.
    pub(super) fn take_unfinished(&self) -> Vec<Unfinished> {
        let inside = self.gates().into_iter().filter_map(|gate| {
            let what = gate.take_unreported()?;
            let (name, text) = (gate.name(), what.clone());
            let describe: Describe = Arc::new(move || text.clone() + &gate.names_of_oldest());
            Some(Unfinished { name, what: Detail::new(describe, what) })
        });
        let accounts = self.accounts.lock().0.clone();
        let others = accounts.into_iter().filter_map(|(name, unreported)| {
            let what = shielded(|| unreported()).ok().flatten()?;
            let text = what.clone();
            Some(Unfinished { name, what: Detail::new(Arc::new(move || text.clone()), what) })
        });
        inside.chain(others).collect()
    }

    fn gates(&self) -> Vec<Gate> {
        self.drains.lock().gates().cloned().collect()
    }
}
