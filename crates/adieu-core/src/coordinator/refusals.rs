//! What was refused only because the shutdown had begun.
//!
//! A body whose start-up meets a signal gets such an error from whatever it declares next, and
//! usually returns it, wrapped in a type of its own. That is not a failure of the body. Wrappers
//! need not name their cause (`#[error(transparent)]`, `anyhow::Error`, a string), so an error is
//! recognised by the text that was given out, not by its type.

use std::fmt::Display;
use std::sync::{Arc, Mutex};

use super::Shutdown;
use super::shared::Shared;
use crate::gate::{Draining, Gate};
use crate::journal::Line;
use crate::outcome::{Outcome, SkipCause};
use crate::phase::Phase;
use crate::report::{Report, TaskReport};
use crate::status::Stage;
use crate::sync::lock;

/// Refusals beyond this many are not remembered: code that goes on trying must not use up memory.
const MOST: usize = 1_000;

#[derive(Default)]
pub(super) struct Refusals(Mutex<Refused>);

#[derive(Default)]
struct Refused {
    texts: Vec<String>,
    tasks: Vec<(Phase, Arc<str>)>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Remembers an error that only says that the shutdown has begun: a body that returns it has
    /// not failed. For adapters.
    #[doc(hidden)]
    pub fn note_refusal(&self, error: &dyn Display) {
        self.shared().note_refusal(error);
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn note_refusal(&self, error: &dyn Display) {
        let text = error.to_string();
        let mut refused = lock(&self.refusals.0);
        if refused.texts.len() < MOST && !refused.texts.contains(&text) {
            refused.texts.push(text);
        }
    }

    /// Notes a task that was added too late, in the log and in the report.
    pub(super) fn refuse_task(&self, phase: &Phase, task: &Arc<str>) {
        let entry = (phase.clone(), Arc::clone(task));
        let mut refused = lock(&self.refusals.0);
        if refused.tasks.len() >= MOST || refused.tasks.contains(&entry) {
            return;
        }
        refused.tasks.push(entry);
        drop(refused);
        let (phase, task) = (phase.clone(), Arc::clone(task));
        self.journal.note(Line::TaskTooLate { phase, task });
        self.amend_report();
    }

    /// Adds the tasks that came too late to a report that has been published.
    pub(super) fn amend_report(&self) {
        let tasks = lock(&self.refusals.0).tasks.clone();
        if !tasks.is_empty() {
            self.change_report(|report| add_refused(report, &tasks));
        }
    }

    /// Whether this error only says that the shutdown has begun.
    pub(crate) fn is_refusal(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        if self.stage() == Stage::Up {
            return false;
        }
        let mut texts = lock(&self.refusals.0).texts.clone();
        // Passes are refused without a trace: entering is too quick for one.
        let gates = [&self.gates, &self.loops].into_iter().flat_map(|gates| lock(gates).clone());
        texts.extend(gates.filter(Gate::is_closed).map(|gate| gate.draining().to_string()));
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

/// Adds each task to its phase, unless it is there already.
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
