//! The errors that were returned only because the shutdown had begun.
//!
//! If a signal arrives during start-up, the next declaration of the body fails. The body usually returns
//! that error, wrapped in a type of its own. This is not a failure of the body. Wrappers need not name
//! their cause (`#[error(transparent)]`, `anyhow::Error`, a string), so an error is recognised by its
//! text, not by its type.

use std::fmt::Display;
use std::sync::Arc;

use super::Shutdown;
use super::shared::Shared;
use crate::gate::{Draining, Gate};
use crate::journal::Line;
use crate::outcome::{Outcome, SkipCause};
use crate::phase::Phase;
use crate::report::{Report, TaskReport};
use crate::status::Stage;

/// Refusals beyond this number are not stored, because code that retries for ever must not exhaust the
/// memory.
const MOST: usize = 1_000;

#[derive(Default)]
pub(super) struct Refusals {
    texts: Vec<String>,
    tasks: Vec<(Phase, Arc<str>)>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Stores an error that was returned only because the shutdown had begun. A body that returns it has
    /// not failed. For adapters.
    #[doc(hidden)]
    pub fn note_refusal(&self, error: &dyn Display) {
        self.shared().note_refusal(error);
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn note_refusal(&self, error: &dyn Display) {
        let text = error.to_string();
        let mut refused = self.refusals.lock();
        if refused.texts.len() < MOST && !refused.texts.contains(&text) {
            refused.texts.push(text);
        }
    }

    /// Adds a task that was declared too late to the log and to the report.
    pub(super) fn refuse_task(&self, phase: &Phase, task: &Arc<str>) {
        let entry = (phase.clone(), Arc::clone(task));
        let mut refused = self.refusals.lock();
        if refused.tasks.len() >= MOST || refused.tasks.contains(&entry) {
            return;
        }
        refused.tasks.push(entry);
        drop(refused);
        let (phase, task) = (phase.clone(), Arc::clone(task));
        self.journal().note(Line::TaskTooLate { phase, task });
        self.amend_report();
    }

    /// Adds the tasks that were declared too late to a report that has been published.
    pub(super) fn amend_report(&self) {
        let tasks = self.refusals.lock().tasks.clone();
        if !tasks.is_empty() {
            self.progress.amend_report(|report| add_refused(report, &tasks));
        }
    }

    /// Whether this error was returned only because the shutdown had begun.
    pub(crate) fn is_refusal(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        if self.progress.stage() == Stage::Up {
            return false;
        }
        let mut texts = self.refusals.lock().texts.clone();
        // Gates do not store their refusals, because that would make entering slow.
        let gates: Vec<Gate> = self.drains.lock().gates().cloned().collect();
        let closed = gates.iter().filter(|gate| gate.is_closed());
        texts.extend(closed.map(|gate| gate.draining().to_string()));
        let mut cause = Some(error);
        while let Some(error) = cause {
            let text = error.to_string();
            if error.is::<Draining>() || texts.iter().any(|refusal| text.contains(refusal)) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Adds each task to its phase, unless the report has it already.
fn add_refused(report: &mut Report, tasks: &[(Phase, Arc<str>)]) {
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
