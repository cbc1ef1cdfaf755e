//! Finds, at the end of a run, the accepted work that was not finished and that no task has reported.

use std::sync::Arc;

use super::accounts::Unfinished;
use super::shared::Shared;
use crate::gate::Gate;
use crate::shield::shielded;
use crate::task::{Describe, Detail};

// === impl Shared ===

impl Shared {
    /// Adds a source of work, which is asked when the run ends.
    pub(crate) fn account_for(
        &self,
        name: Arc<str>,
        unreported: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) {
        self.accounts.lock().add(name, Arc::new(unreported));
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
        let accounts = self.accounts.lock().all();
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
