//! Logs what a driver has done. Nothing here changes the shutdown.

use std::sync::Arc;
use std::time::Duration;

use super::super::accounts::Unfinished;
use super::super::machine::{PhaseState, TaskState};
use super::super::run::with_error;
use super::Driver;
use crate::journal::Line;
use crate::outcome::{Ending, Outcome};
use crate::plan::PhaseId;
use crate::status::Stage;
use crate::task::{Detail, LazySpan, TaskId, ask};
use crate::time::now;

/// The description in log and report of a task that does not describe itself in time.
const NO_ANSWER: &str = "(no answer when asked)";

// === impl Driver ===

impl Driver {
    /// Closes a span on the thread of the log, because that calls the subscriber.
    pub(super) fn close(&self, span: &LazySpan) {
        if let Some(span) = span.close() {
            self.shared.journal().log(move || drop(span));
        }
    }

    pub(super) fn log_waiting(&self) {
        let status = self.shared.with_run(|run, _| run.status(Stage::ShuttingDown, now()));
        if let Some(status) = status {
            let left = status.until_cut().unwrap_or_default();
            let names_only = status.clone().without_details().waiting_line();
            let describe = Arc::new(move || status.clone().describe().waiting_line());
            let waiting_for = Detail::new(describe, names_only);
            self.shared.journal().note(Line::StillWaiting { waiting_for, left });
        }
    }

    /// Logs a task that failed. Its description is requested for the log and for the report.
    pub(super) fn log_failure(&self, id: TaskId) {
        let found = self.shared.with_run(|run, _| {
            let task = run.machine.task(id);
            let TaskState::Over { outcome, took } = &task.state else { return None };
            let phase = run.machine.phase(task.phase).name.clone();
            let name = Arc::clone(&task.name);
            let error = run.late_error_of(id);
            Some((phase, name, outcome.clone(), *took, error, run.describe_of(id)))
        });
        let Some(Some((phase, task, outcome, took, error, describe))) = found else { return };
        let detail = match (error, describe) {
            (None, describe) => describe.map(|describe| Detail::new(describe, NO_ANSWER)),
            (Some(error), None) => {
                let text = error.to_string();
                Some(Detail::new(Arc::new(move || error.to_string()), text))
            }
            (Some(error), Some(describe)) => {
                let text = error.to_string();
                let describe = Arc::new(move || with_error(ask(&describe), &error));
                Some(Detail::new(describe, text))
            }
        };
        if let Some(detail) = &detail {
            self.shared.with_run(|run, _| run.add_detail(id, Arc::clone(detail)));
        }
        self.shared.journal().note(Line::TaskFailed { phase, task, outcome, detail, took });
    }

    /// Logs a phase that is over, if it has tasks.
    pub(super) fn log_phase_over(&self, phase: PhaseId) {
        if !self.shared.journal().is_heard() {
            return;
        }
        let found = self.shared.with_run(|run, declared| {
            let over = run.machine.phase(phase);
            let PhaseState::Over { outcome, ran } = &over.state else {
                return None;
            };
            // Tasks that were skipped are still in the registry.
            let tasks = over.tasks.len() + declared.registry.count(phase);
            let took = ran.map(|(from, to)| to.saturating_duration_since(from));
            (tasks > 0).then(|| (over.name.clone(), outcome.clone(), took, tasks))
        });
        let line = match found.flatten() {
            Some((phase, outcome @ Outcome::Skipped { .. }, _, tasks)) => {
                Line::PhaseSkipped { phase, outcome, tasks }
            }
            Some((phase, outcome, took, tasks)) => {
                Line::PhaseOver { phase, outcome, took: took.unwrap_or_default(), tasks }
            }
            None => return,
        };
        self.shared.journal().note(line);
    }

    pub(super) fn log_unfinished(&self, unfinished: &[Unfinished]) {
        for Unfinished { name, what, .. } in unfinished {
            let (name, what) = (Arc::clone(name), Arc::clone(what));
            self.shared.journal().note(Line::Unfinished { name, what });
        }
    }

    pub(super) fn log_complete(&self, outcome: Ending, took: Duration) {
        self.shared.journal().note(Line::Complete { outcome, took });
    }
}
