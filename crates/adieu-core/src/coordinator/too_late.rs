//! Declarations that are refused because the shutdown has begun: they are stored, logged and reported,
//! and recognised when the body of `main` returns one.

use std::fmt::Display;
use std::sync::Arc;

use super::Shutdown;
use super::refusals::add_refused;
use super::shared::Shared;
use crate::gate::{Draining, Gate};
use crate::journal::Line;
use crate::phase::Phase;
use crate::status::Stage;

// === impl Shutdown ===

impl Shutdown {
    pub(crate) fn note_refusal(&self, error: &dyn Display) {
        self.shared().note_refusal(error);
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn note_refusal(&self, error: &dyn Display) {
        let text = error.to_string();
        self.refusals.lock().add_text(text);
    }

    /// Adds a task that was declared too late to the log and to the report.
    pub(super) fn refuse_task(&self, phase: &Phase, task: &Arc<str>) {
        if !self.refusals.lock().add_task(phase, task) {
            return;
        }
        let (phase, task) = (phase.clone(), Arc::clone(task));
        self.journal().note(Line::TaskTooLate { phase, task });
        self.amend_report();
    }

    /// Adds the tasks that were declared too late, and the causes of the exit code, to a report that has
    /// been published.
    pub(super) fn amend_report(&self) {
        let tasks = self.refusals.lock().tasks().to_vec();
        let causes = self.process.exit_causes();
        if !tasks.is_empty() || !causes.is_empty() {
            self.progress.amend_report(|report| {
                add_refused(report, &tasks);
                causes.add_to(report);
            });
        }
    }

    /// Returns whether this error was returned only because the shutdown had begun.
    pub(crate) fn is_refusal(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        if self.progress.stage() == Stage::Up {
            return false;
        }
        let mut texts = self.refusals.lock().texts().to_vec();
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
