//! The current state of the shutdown, for status pages and log lines.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::time::{Short, millis};

/// The stages of a shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stage {
    /// The shutdown has not begun.
    Up,
    /// The phases are running.
    ShuttingDown,
    /// All phases are over.
    Over,
}

/// The current state of the shutdown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The stage that the shutdown has reached.
    pub stage: Stage,
    /// The reason of the shutdown, if it has begun.
    pub reason: Option<String>,
    /// The time since the shutdown began.
    #[serde(with = "millis", rename = "elapsed_ms")]
    pub elapsed: Duration,
    /// The time until the deadline.
    #[serde(with = "millis", rename = "remaining_ms")]
    pub remaining: Duration,
    /// The running tasks, the oldest first.
    pub waiting_for: Vec<WaitingFor>,
    /// The tasks that have failed or were cut short. If a phase has started, each of its tasks that
    /// is neither here nor in `waiting_for` has finished.
    pub unclean: Vec<UncleanTask>,
}

/// A task that has failed, or was cut short.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UncleanTask {
    /// Its phase.
    pub phase: String,
    /// Its name.
    pub task: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
}

/// A running task.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WaitingFor {
    /// Its phase.
    pub phase: String,
    /// Its name.
    pub task: Arc<str>,
    /// The time since it started.
    #[serde(with = "millis", rename = "age_ms")]
    pub age: Duration,
    /// The time until it is cancelled.
    #[serde(with = "millis", rename = "left_ms")]
    pub left: Duration,
    /// The current [description](crate::TaskSpec::describe) of the task, if it has one.
    pub detail: Option<String>,
}

// === impl Status ===

impl Status {
    /// Returns the status without a run.
    pub(crate) fn before(stage: Stage) -> Self {
        Self {
            stage,
            reason: None,
            elapsed: Duration::ZERO,
            remaining: Duration::ZERO,
            waiting_for: Vec::new(),
            unclean: Vec::new(),
        }
    }

    /// Returns the time until the first running task is cancelled; `None` if no task is running.
    #[must_use]
    pub fn until_cut(&self) -> Option<Duration> {
        self.waiting_for.iter().map(|waiting| waiting.left).min()
    }

    /// Names the running tasks in one line: the five oldest, and the number of the others.
    pub(crate) fn waiting_line(&self) -> String {
        const NAMED: usize = 5;
        if self.waiting_for.is_empty() {
            return "no task".into();
        }
        let named = self.waiting_for.iter().take(NAMED).map(|waiting| {
            let WaitingFor { phase, task, age, left: _, detail } = waiting;
            let detail = detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
            format!("{phase}/{task} for {}{detail}", Short(*age))
        });
        let mut line = named.collect::<Vec<_>>().join(", ");
        if self.waiting_for.len() > NAMED {
            line.push_str(&format!(" and {} more", self.waiting_for.len() - NAMED));
        }
        line
    }
}
