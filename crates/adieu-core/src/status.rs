//! What the shutdown is doing right now.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::time::{Short, millis};

/// How far the shutdown is. The order is the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stage {
    /// Nobody has asked for a shutdown.
    Up,
    /// The phases are running.
    ShuttingDown,
    /// All phases are over.
    Over,
}

/// What the shutdown is doing right now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// How far it is.
    pub stage: Stage,
    /// Why it runs, if it does.
    pub reason: Option<String>,
    /// How long it has been running.
    #[serde(with = "millis", rename = "elapsed_ms")]
    pub elapsed: Duration,
    /// How much of the deadline is left.
    #[serde(with = "millis", rename = "remaining_ms")]
    pub remaining: Duration,
    /// The tasks that are not over yet, the oldest first.
    pub waiting_for: Vec<WaitingFor>,
    /// The tasks that have ended otherwise than they should. Every other task of a phase that has
    /// started, and that is not waited for, has finished.
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

/// A task that is not over yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WaitingFor {
    /// Its phase.
    pub phase: String,
    /// Its name.
    pub task: Arc<str>,
    /// How long it has been running.
    #[serde(with = "millis", rename = "age_ms")]
    pub age: Duration,
    /// How long until it is cancelled.
    #[serde(with = "millis", rename = "left_ms")]
    pub left: Duration,
    /// What it is waiting for, if it says so.
    pub detail: Option<String>,
}

// === impl Status ===

impl Status {
    /// What there is to say before a run has begun.
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

    /// How long until the first of these tasks is cancelled; `None` if it waits for none.
    #[must_use]
    pub fn until_cut(&self) -> Option<Duration> {
        self.waiting_for.iter().map(|waiting| waiting.left).min()
    }

    /// Names what is waited for in one line: the oldest few, and how many more.
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
