//! Finds the accepted work that was not finished and that no task has reported.

use std::sync::Arc;

use super::accounts::{Kind, Unfinished, WorkSource};
use super::shared::Shared;
use crate::gate::Gate;
use crate::task::{Describe, Detail};

/// The words that a report adds to work that remained when resources began to close. The work may
/// have ended since, but it is not known whether it succeeded.
const AT_CLOSE: &str = "when resources began to close";

// === impl Shared ===

impl Shared {
    /// Adds a source of accepted work that is not a gate.
    pub(crate) fn account_for(&self, source: WorkSource) {
        self.accounts.lock().add(source);
    }

    /// Closes all gates, for good. Work that is admitted after the accounts were made would be lost.
    pub(super) fn close_gates(&self) {
        self.gates().iter().for_each(Gate::close);
    }

    /// Closes all gates, and returns the work that no phase has waited for. The next tasks may close what
    /// it uses.
    pub(super) fn find_work_before_close(&self) -> Vec<Unfinished> {
        self.close_gates();
        let inside = self.gates().into_iter().filter_map(|gate| inside(gate, Kind::Lost, AT_CLOSE));
        let sources = self.accounts.lock().sources();
        let others = sources.iter().filter_map(|source| {
            let what = source.read_using_resources()?;
            Some(Unfinished::new(source.name(), Kind::Lost, format!("{what} {AT_CLOSE}")))
        });
        self.stored(inside.chain(others).collect())
    }

    /// Returns the accepted work that is not finished and that no task has reported, as far as it was not
    /// found before.
    pub(super) fn find_unfinished(&self) -> Vec<Unfinished> {
        let mut found = Vec::new();
        for gate in self.gates() {
            if let Err(cut) = gate.report_cut_off() {
                found.push(Unfinished::new(&gate.name(), Kind::Lost, cut));
            }
            found.extend(inside(gate, Kind::Remaining, "when the shutdown ended"));
        }
        let sources = self.accounts.lock().sources();
        for source in sources {
            // In this order: work that is lost meanwhile is found twice instead of never.
            let remaining = source.read_remaining();
            let lost = source.take_lost();
            let both = [(Kind::Remaining, remaining), (Kind::Lost, lost)];
            let both = both.into_iter().filter_map(|(kind, what)| Some((kind, what?)));
            found.extend(both.map(|(kind, what)| Unfinished::new(source.name(), kind, what)));
        }
        self.stored(found)
    }

    /// Returns all work of this run that was found.
    pub(super) fn all_unfinished(&self) -> Vec<Unfinished> {
        self.accounts.lock().found()
    }

    /// Forgets the work that an aborted run has left: the run is resumed, and may finish it.
    pub(super) fn forget_remaining(&self) {
        let forgotten = self.accounts.lock().take_remaining();
        drop(forgotten); // Not under the lock.
    }

    fn stored(&self, found: Vec<Unfinished>) -> Vec<Unfinished> {
        let mut accounts = self.accounts.lock();
        found.iter().for_each(|found| accounts.store(found));
        drop(accounts);
        found
    }

    fn gates(&self) -> Vec<Gate> {
        self.drains.lock().gates().cloned().collect()
    }
}

/// Returns the work inside a gate, if the gate was never cut.
fn inside(gate: Gate, kind: Kind, when: &str) -> Option<Unfinished> {
    let inside = gate.uncut_inside();
    let text = format!("{inside} in flight {when}");
    (inside > 0).then(|| {
        let (name, what) = (gate.name(), text.clone());
        let describe: Describe = Arc::new(move || text.clone() + &gate.names_of_oldest());
        Unfinished { name, kind, what: Detail::new(describe, what) }
    })
}

// === impl Unfinished ===

impl Unfinished {
    fn new(name: &Arc<str>, kind: Kind, what: String) -> Self {
        let text = what.clone();
        let describe: Describe = Arc::new(move || text.clone());
        Self { name: Arc::clone(name), kind, what: Detail::new(describe, what) }
    }
}
