//! How worker threads ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::report::{DrainReport, millis};

/// How worker threads ended, one by one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkersReport {
    /// What they are called.
    pub name: Arc<str>,
    /// How long it took to end them all.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Duration,
    /// Each of them, by its number.
    pub workers: Vec<WorkerReport>,
}

/// How one worker thread ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Which one.
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
    /// By itself.
    Drained,
    /// With an error.
    Failed {
        /// What it said.
        error: Arc<str>,
    },
    /// It panicked.
    Panicked,
    /// Its time was up, and it was dropped.
    Cut,
    /// Its time was up, and it blocks its thread: it is still there.
    Hung,
}

// === impl WorkersReport ===

impl WorkersReport {
    /// Whether every worker drained all that it was sent, and all its actors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.workers.iter().all(WorkerReport::is_clean)
    }

    /// The actors of all workers in one report, with the name of the worker before each path.
    #[must_use]
    pub fn merged(&self) -> DrainReport {
        let merged = DrainReport::merged(self.workers.iter().map(|worker| {
            let within = format!("/{}-{}", self.name, worker.index);
            worker.actors.clone().within(&within)
        }));
        DrainReport { took: self.took, ..merged }
    }

    /// Returns how many messages to workers were refused, or accepted and not processed. Those to
    /// actors of workers are not among them.
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
    /// Whether it drained all that it was sent, and all its actors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_drained = self.ending == WorkerEnding::Drained;
        is_drained && self.dead_letters == 0 && self.actors.is_clean()
    }

    /// Of one that cannot speak for itself.
    pub(super) fn without_word(index: usize, ending: WorkerEnding, dead_letters: u64) -> Self {
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
            Self::Hung => f.write_str("hangs, and is still there"),
        }
    }
}
