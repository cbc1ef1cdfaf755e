//! Counts the lines of the journal through the `metrics` facade.
//!
//! | metric | labels |
//! |---|---|
//! | `adieu_shutdown_initiated_total` | `reason` |
//! | `adieu_shutdown_completed_total` | `outcome` |
//! | `adieu_shutdown_seconds` | `outcome` |
//! | `adieu_phase_seconds` | `phase`, `outcome` |
//! | `adieu_task_failures_total` | `phase`, `task`, `outcome` |
//! | `adieu_task_failure_seconds` | `phase`, `task`, `outcome` |
//! | `adieu_loop_failures_total` | `name`, `part` |

use metrics::{counter, histogram};

use super::Line;
use crate::outcome::{Ending, Outcome};

pub(super) const COUNTS: bool = true;

pub(super) fn count(line: &Line) {
    match line {
        Line::Initiated { reason, .. } => {
            counter!("adieu_shutdown_initiated_total", "reason" => reason.clone()).increment(1);
        }
        Line::TaskFailed { phase, task, outcome, took, .. } => {
            let labels = [
                ("phase", phase.to_string()),
                ("task", task.to_string()),
                ("outcome", kind(outcome).to_owned()),
            ];
            counter!("adieu_task_failures_total", &labels).increment(1);
            histogram!("adieu_task_failure_seconds", &labels).record(*took);
        }
        Line::PhaseOver { phase, outcome, took, .. } => {
            let labels = [("phase", phase.to_string()), ("outcome", kind(outcome).to_owned())];
            histogram!("adieu_phase_seconds", &labels).record(*took);
        }
        Line::Complete { outcome, took } => {
            let outcome = match outcome {
                Ending::Clean => "clean",
                Ending::Unclean => "unclean",
                Ending::Aborted { .. } => "aborted",
            };
            counter!("adieu_shutdown_completed_total", "outcome" => outcome).increment(1);
            histogram!("adieu_shutdown_seconds", "outcome" => outcome).record(*took);
        }
        Line::LoopFailed { name, part, .. } => {
            counter!("adieu_loop_failures_total", "name" => name.to_string(), "part" => *part)
                .increment(1);
        }
        Line::Deadline { .. }
        | Line::OverBudget { .. }
        | Line::Signal { .. }
        | Line::PhaseSkipped { .. }
        | Line::TaskTooLate { .. }
        | Line::StillWaiting { .. }
        | Line::Unfinished { .. }
        | Line::CheckChanged { .. } => {}
    }
}

/// Returns the kind of the outcome without its details, because a metric's label must have few
/// values.
fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Finished => "finished",
        Outcome::Skipped { .. } => "skipped",
        Outcome::Cancelled => "cancelled",
        Outcome::Aborted => "aborted",
        Outcome::Failed { .. } => "failed",
        Outcome::Panicked { .. } => "panicked",
        Outcome::TimedOut { .. } => "timed-out",
        Outcome::Abandoned => "abandoned",
    }
}
