//! What is counted, through the `metrics` facade.
//!
//! | metric | labels |
//! |---|---|
//! | `adieu_shutdown_initiated_total` | `reason` |
//! | `adieu_shutdown_completed_total` | `outcome` |
//! | `adieu_shutdown_seconds` | `outcome` |
//! | `adieu_phase_seconds` | `phase`, `outcome` |
//! | `adieu_task_failures_total` | `phase`, `task`, `outcome` |
//! | `adieu_task_failure_seconds` | `phase`, `task`, `outcome` |

use std::time::Duration;

use metrics::{counter, histogram};

use crate::outcome::{Ending, Outcome};
use crate::phase::Phase;
use crate::reason::Reason;
use crate::report::Report;

pub(super) fn initiated(reason: &Reason) {
    counter!("adieu_shutdown_initiated_total", "reason" => reason.to_string()).increment(1);
}

pub(super) fn task_over(phase: &Phase, task: &str, outcome: &Outcome, took: Duration) {
    let labels = [
        ("phase", phase.to_string()),
        ("task", task.to_owned()),
        ("outcome", kind(outcome).to_owned()),
    ];
    counter!("adieu_task_failures_total", &labels).increment(1);
    histogram!("adieu_task_failure_seconds", &labels).record(took);
}

pub(super) fn phase_over(phase: &Phase, outcome: &Outcome, took: Duration) {
    let labels = [("phase", phase.to_string()), ("outcome", kind(outcome).to_owned())];
    histogram!("adieu_phase_seconds", &labels).record(took);
}

pub(super) fn complete(report: &Report) {
    let outcome = match report.outcome {
        Ending::Clean => "clean",
        Ending::Unclean => "unclean",
        Ending::Aborted { .. } => "aborted",
    };
    counter!("adieu_shutdown_completed_total", "outcome" => outcome).increment(1);
    histogram!("adieu_shutdown_seconds", "outcome" => outcome).record(report.took);
}

/// A word for it, without the details: a label must not take a thousand values.
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
