//! The report of a shutdown: outcomes and times of all phases and tasks.

mod exit_causes;
mod file;
mod timeline;
mod unclean;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use unclean::UncleanShutdown;

pub(crate) use exit_causes::ExitCauses;
pub(crate) use file::ReportFile;

use crate::outcome::{Ending, Outcome};

/// The result of a shutdown: the outcome, start and duration of each phase and task.
///
/// It serialises with times in milliseconds. [`Display`](std::fmt::Display) writes a timeline:
///
/// ```text
/// shutdown clean in 6.9s of 27s: SIGTERM, exit code 0
///       0s  + before-service-unbind        5s  finished
///       0s      + lame duck                5s  finished
///       5s  + service-requests-done      1.9s  finished
///       5s      + drain http             1.9s  finished
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// How the shutdown ended.
    pub outcome: Ending,
    /// The name of the reason.
    pub reason: String,
    /// When it began, in wall time, as RFC 3339.
    pub started_at: String,
    /// How long it took.
    #[serde(with = "crate::time::millis", rename = "took_ms")]
    pub took: Duration,
    /// How long it was allowed to take: the time from its beginning to its deadline, which may have
    /// been shortened.
    #[serde(with = "crate::time::millis", rename = "allowed_ms")]
    pub allowed: Duration,
    /// The exit code that the process should have.
    pub exit_code: u8,
    /// Every phase of the plan, in order.
    pub phases: Vec<PhaseReport>,
    /// The problems that no task has reported. If there are any, the outcome is not clean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// A problem that no task of the shutdown has reported, such as accepted work that was not finished
/// because the phase that waits for it is disabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the gate, loop, system or other part that has the problem.
    pub name: Arc<str>,
    /// The problem, in one line.
    pub what: String,
}

/// The result of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// The worst outcome of its tasks.
    pub outcome: Outcome,
    /// The phases that it waited for.
    pub depends_on: Vec<String>,
    /// How long it was allowed to take.
    #[serde(with = "crate::time::millis", rename = "timeout_ms")]
    pub timeout: Duration,
    /// When it started, from the beginning of the shutdown; `None` if it never did.
    #[serde(with = "crate::time::millis::option", rename = "started_ms")]
    pub started: Option<Duration>,
    /// How long it took; `None` if it never started.
    #[serde(with = "crate::time::millis::option", rename = "took_ms")]
    pub took: Option<Duration>,
    /// Its tasks, in the order in which they were added.
    pub tasks: Vec<TaskReport>,
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its name.
    pub name: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// The [description](crate::TaskSpec::describe) of the task when it failed or was cut short, if it
    /// has one, and the error that it returned after its time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it started, from the beginning of the shutdown; `None` if it never did.
    #[serde(with = "crate::time::millis::option", rename = "started_ms")]
    pub started: Option<Duration>,
    /// How long it took; `None` if it never started.
    #[serde(with = "crate::time::millis::option", rename = "took_ms")]
    pub took: Option<Duration>,
}

// === impl Report ===

impl Report {
    /// Returns whether the shutdown was clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.outcome == Ending::Clean
    }

    /// Returns the report if the shutdown was clean, and otherwise an error that names the tasks that
    /// failed.
    ///
    /// For programs that end with `?`. Such a program chooses its own exit code; the one of the
    /// shutdown is in the report.
    ///
    /// # Errors
    ///
    /// If the shutdown was aborted, if a task failed, panicked, timed out, was aborted, was abandoned or
    /// did not run, or if accepted work was not finished.
    pub fn into_result(self: Arc<Self>) -> Result<Arc<Self>, UncleanShutdown> {
        if self.is_clean() { Ok(self) } else { Err(UncleanShutdown::new(self)) }
    }

    /// Returns the phase with this name.
    #[must_use]
    pub fn phase(&self, name: impl AsRef<str>) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.name == name.as_ref())
    }
}

// === impl Finding ===

impl Finding {
    pub(crate) fn new(name: impl Into<Arc<str>>, what: impl Into<String>) -> Self {
        Self { name: name.into(), what: what.into() }
    }
}

// === impl PhaseReport ===

impl PhaseReport {
    /// Returns the first task with this name.
    #[must_use]
    pub fn task(&self, name: &str) -> Option<&TaskReport> {
        self.tasks.iter().find(|task| &*task.name == name)
    }
}
