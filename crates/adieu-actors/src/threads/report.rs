//! The report of worker threads: how each ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::report::{DrainReport, millis};

/// The report of worker threads: how each ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkersReport {
    /// The name of the worker threads.
    pub name: Arc<str>,
    /// How long the shutdown of all workers took.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Duration,
    /// The workers, by index.
    pub workers: Vec<WorkerReport>,
}

/// How one worker thread ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The index of the worker.
    pub index: usize,
    /// How its body ended.
    pub ending: WorkerEnding,
    /// How its actors ended.
    pub actors: DrainReport,
    /// How many messages to this worker were refused, or accepted and not processed.
    pub dead_letters: u64,
}

/// How the body of a worker thread ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkerEnding {
    /// The body returned.
    Drained,
    /// The body returned an error.
    Failed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// The body panicked.
    Panicked,
    /// The body had not returned at the deadline, and was dropped.
    Cut,
    /// The body blocks its thread, and still runs.
    Hung,
}

// === impl WorkersReport ===

impl WorkersReport {
    /// Returns whether every worker processed all its messages, and drained all its actors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.workers.iter().all(WorkerReport::is_clean)
    }

    /// Merges the reports of all workers' actors. The name of the worker is a prefix of each path.
    #[must_use]
    pub fn merged(&self) -> DrainReport {
        let merged = DrainReport::merged(self.workers.iter().map(|worker| {
            let prefix = format!("/{}-{}", self.name, worker.index);
            worker.actors.clone().prefixed(&prefix)
        }));
        DrainReport { took: self.took, ..merged }
    }

    /// Returns how many messages to workers were refused, or accepted and not processed. Messages to
    /// actors of workers are not included.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.workers.iter().map(|worker| worker.dead_letters).sum()
    }
}

impl fmt::Display for WorkersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = self.workers.iter().filter(|worker| worker.is_clean()).count();
        let (all, took) = (self.workers.len(), self.took);
        let actors = self.merged();
        let dead = self.dead_letters() + actors.dead_letters();
        write!(f, "{clean} of {all} worker threads {} drained in {took:.1?}", self.name)?;
        write!(f, ", {dead} dead letters; {actors}")?;
        for worker in self.workers.iter().filter(|worker| !worker.is_clean()) {
            write!(f, "\n  worker {} {}", worker.index, worker.ending)?;
            if worker.dead_letters > 0 {
                write!(f, ", {} dead letters", worker.dead_letters)?;
            }
        }
        Ok(())
    }
}

// === impl WorkerReport ===

impl WorkerReport {
    /// Returns whether the worker processed all its messages, and drained all its actors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_drained = self.ending == WorkerEnding::Drained;
        is_drained && self.dead_letters == 0 && self.actors.is_clean()
    }

    /// Creates the report of a worker that did not send one.
    pub(super) fn missing(index: usize, ending: WorkerEnding, dead_letters: u64) -> Self {
        Self { index, ending, actors: DrainReport::empty(), dead_letters }
    }
}

impl fmt::Display for WorkerEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => f.write_str("drained"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::Panicked => f.write_str("panicked"),
            Self::Cut => f.write_str("was cut short"),
            Self::Hung => f.write_str("hangs, and is still running"),
        }
    }
}
