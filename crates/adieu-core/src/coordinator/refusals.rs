//! The errors that were returned only because the shutdown had begun.
//!
//! If a signal arrives during start-up, the next declaration of the body fails. The body usually returns
//! that error, wrapped in a type of its own. This is not a failure of the body. Wrappers need not name
//! their cause (`#[error(transparent)]`, `anyhow::Error`, a string), so an error is recognised by its
//! text, not by its type.

use std::sync::Arc;

use crate::outcome::{Outcome, SkipCause};
use crate::phase::Phase;
use crate::report::{Report, TaskReport};

/// Refusals beyond this number are not stored, because code that retries for ever must not exhaust the
/// memory.
const MOST: usize = 1_000;

/// The texts of refusals, and the tasks that were declared too late.
#[derive(Default)]
pub(super) struct Refusals {
    texts: Vec<String>,
    tasks: Vec<(Phase, Arc<str>)>,
}

// === impl Refusals ===

impl Refusals {
    pub(super) fn add_text(&mut self, text: String) {
        if self.texts.len() < MOST && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// Stores a task that was declared too late. Returns false if it is stored already, or if there are
    /// too many.
    pub(super) fn add_task(&mut self, phase: &Phase, task: &Arc<str>) -> bool {
        let entry = (phase.clone(), Arc::clone(task));
        if self.tasks.len() >= MOST || self.tasks.contains(&entry) {
            return false;
        }
        self.tasks.push(entry);
        true
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    pub(super) fn tasks(&self) -> &[(Phase, Arc<str>)] {
        &self.tasks
    }
}

/// Adds each task to its phase, unless the report has it already.
pub(super) fn add_refused(report: &mut Report, tasks: &[(Phase, Arc<str>)]) {
    let outcome = Outcome::Skipped { because: SkipCause::TooLate };
    for (phase, name) in tasks {
        let Some(phase) = report.phases.iter_mut().find(|known| known.name == phase.as_str())
        else {
            continue;
        };
        if !phase.tasks.iter().any(|task| task.name == *name && task.outcome == outcome) {
            let name = Arc::clone(name);
            let outcome = outcome.clone();
            phase.tasks.push(TaskReport { name, outcome, detail: None, started: None, took: None });
        }
    }
}
