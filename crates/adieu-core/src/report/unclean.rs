//! The error for a shutdown that was not clean.

use std::fmt;
use std::sync::Arc;

use super::{Report, TaskReport};
use crate::outcome::{Ending, Outcome};

/// The maximum number of failures that are named. The others are counted.
const NAMED: usize = 5;

/// A task failed, was cut short or did not run. Returned by [`Report::into_result`].
///
/// [`Display`](fmt::Display) names the tasks in one line.
#[derive(Clone, Debug, PartialEq)]
pub struct UncleanShutdown {
    report: Arc<Report>,
}

// === impl UncleanShutdown ===

impl UncleanShutdown {
    pub(super) fn new(report: Arc<Report>) -> Self {
        Self { report }
    }

    /// Returns the whole report.
    #[must_use]
    pub fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// Returns the exit code that the process should have.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.report.exit_code
    }
}

impl fmt::Display for UncleanShutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.report.outcome {
            Ending::Aborted { phase } => write!(f, "shutdown aborted by phase {phase}")?,
            Ending::Unclean | Ending::Clean => f.write_str("shutdown was not clean")?,
        }
        let unclean = self.report.phases.iter().flat_map(|phase| {
            let tasks = phase.tasks.iter().filter(|task| !task.outcome.is_clean());
            tasks.map(|task| (phase.name.as_str(), task))
        });
        let is_skipped = |task: &TaskReport| matches!(task.outcome, Outcome::Skipped { .. });
        let (skipped, failed): (Vec<_>, Vec<_>) = unclean.partition(|(_, task)| is_skipped(task));
        for (at, (phase, task)) in failed.iter().take(NAMED).enumerate() {
            let before = if at == 0 { ":" } else { "," };
            write!(f, "{before} {phase}/{} {}", task.name, task.outcome)?;
        }
        if failed.len() > NAMED {
            write!(f, " and {} more", failed.len() - NAMED)?;
        }
        let findings = &self.report.findings;
        for (at, problem) in findings.iter().take(NAMED).enumerate() {
            let before = if at == 0 && failed.is_empty() { ":" } else { ";" };
            write!(f, "{before} {}: {}", problem.name, problem.what)?;
        }
        if findings.len() > NAMED {
            write!(f, " and {} more", findings.len() - NAMED)?;
        }
        match skipped.len() {
            // No task is unclean, so a phase without tasks is.
            0 if failed.is_empty() && findings.is_empty() => {
                let phase = self.report.phases.iter().find(|phase| !phase.outcome.is_clean());
                phase.map_or(Ok(()), |phase| write!(f, ": {} {}", phase.name, phase.outcome))
            }
            0 => Ok(()),
            1 => f.write_str("; 1 task did not run"),
            tasks => write!(f, "; {tasks} tasks did not run"),
        }
    }
}

impl std::error::Error for UncleanShutdown {}
