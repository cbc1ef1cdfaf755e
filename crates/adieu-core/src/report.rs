//! The outcome of everything, with times.

mod timeline;
mod unclean;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use unclean::UncleanShutdown;

use crate::outcome::{Ending, Outcome};

/// How a shutdown went: the outcome, start and duration of everything.
///
/// It serialises with times in milliseconds, and [`Display`](std::fmt::Display)s as a timeline:
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
    /// How it ended as a whole.
    pub outcome: Ending,
    /// Why it ran.
    pub reason: String,
    /// When it began, in wall time, as RFC 3339.
    pub started_at: String,
    /// How long it took.
    #[serde(with = "crate::time::millis", rename = "took_ms")]
    pub took: Duration,
    /// How long it could have taken: the deadline that was fixed when it began, as far as it was
    /// not shortened.
    #[serde(with = "crate::time::millis", rename = "allowed_ms")]
    pub allowed: Duration,
    /// What the process should say to its supervisor.
    pub exit_code: u8,
    /// Every phase of the plan, in order.
    pub phases: Vec<PhaseReport>,
}

/// How a phase went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// As the worst of its tasks ended.
    pub outcome: Outcome,
    /// What it waited for.
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

/// How a task went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its name.
    pub name: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it was waiting for when it went wrong, if it says so.
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
    /// Whether everything that had to be done was done.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.outcome == Ending::Clean
    }

    /// Returns the report if the shutdown was clean, and otherwise an error that names what failed.
    ///
    /// For programs that end with `?`. The exit code of such a program is its own; the one that the
    /// configuration asks for is in the report.
    ///
    /// # Errors
    ///
    /// If the shutdown was aborted, or a task failed, panicked, timed out, was aborted, was given up
    /// or did not run.
    pub fn into_result(self: Arc<Self>) -> Result<Arc<Self>, UncleanShutdown> {
        if self.is_clean() { Ok(self) } else { Err(UncleanShutdown::new(self)) }
    }

    /// The phase of this name.
    #[must_use]
    pub fn phase(&self, name: impl AsRef<str>) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.name == name.as_ref())
    }
}

// === impl PhaseReport ===

impl PhaseReport {
    /// The first task of this name.
    #[must_use]
    pub fn task(&self, name: &str) -> Option<&TaskReport> {
        self.tasks.iter().find(|task| &*task.name == name)
    }
}
