//! What is said while a shutdown runs: one line a transition, in one place.

#[cfg(not(feature = "metrics"))]
#[path = "journal/metrics_off.rs"]
mod metrics;
#[cfg(feature = "metrics")]
#[path = "journal/metrics_on.rs"]
mod metrics;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::subscriber::NoSubscriber;
use tracing::{error, info, warn};

use crate::budget::BudgetCheck;
use crate::coordinator::ladder::Rung;
use crate::outcome::{Ending, Outcome};
use crate::phase::Phase;
use crate::reason::Reason;
use crate::report::Report;
use crate::signals::Signal;
use crate::status::Status;
use crate::time::Short;

/// Says what happens, through `tracing`; and on stderr if it was asked to and nobody listens to
/// `tracing`, so that a first program shows something without any set-up.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    aloud: AtomicBool,
}

// === impl Journal ===

impl Journal {
    /// From now on, what nobody else would hear is written to stderr.
    pub(crate) fn speak_up(&self) {
        self.aloud.store(true, Ordering::Relaxed);
    }

    pub(crate) fn platform(&self, kill_after: Option<Duration>, how: &str) {
        let text = kill_after.map_or_else(|| "never".into(), |after| Short(after).to_string());
        info!(kill_after = %text, how, "deadline");
        self.say(|| format!("deadline              kill-after={text} ({how})"));
    }

    pub(crate) fn over_budget(&self, check: &BudgetCheck) {
        warn!("the shutdown may be killed before it is over: {check}");
        self.say(|| format!("over budget           {check}"));
    }

    pub(crate) fn initiated(&self, reason: &Reason, deadline: Duration, plan: &str) {
        metrics::initiated(reason);
        let deadline = Short(deadline);
        info!(%reason, %deadline, plan, "shutdown initiated");
        self.say(|| {
            format!("shutdown initiated    reason={reason} deadline={deadline} plan={plan}")
        });
    }

    pub(crate) fn signal(&self, signal: Signal, rung: Rung, next: Rung) {
        warn!(%signal, "{signal}: {rung}; {signal} again will {next}");
        self.say(|| format!("{signal:<21} {rung}; {signal} again will {next}"));
    }

    pub(crate) fn task_went_wrong(
        &self,
        phase: &Phase,
        task: &str,
        outcome: &Outcome,
        detail: Option<&str>,
        took: Duration,
    ) {
        metrics::task_over(phase, task, outcome, took);
        let took = Short(took);
        if *outcome == Outcome::Abandoned {
            error!(%phase, task, detail, %took, "task {outcome}");
        } else {
            warn!(%phase, task, detail, %took, "task {outcome}");
        }
        let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
        self.say(|| format!("task went wrong       phase={phase} task={task} {outcome}{detail}"));
    }

    pub(crate) fn phase_over(
        &self,
        phase: &Phase,
        outcome: &Outcome,
        took: Duration,
        tasks: usize,
    ) {
        metrics::phase_over(phase, outcome, took);
        let took = Short(took);
        info!(%phase, %outcome, %took, tasks, "phase over");
        self.say(|| {
            format!("phase over            phase={phase} {outcome} took={took} tasks={tasks}")
        });
    }

    pub(crate) fn phase_skipped(&self, phase: &Phase, outcome: &Outcome, tasks: usize) {
        info!(%phase, %outcome, tasks, "phase skipped");
        self.say(|| format!("phase skipped         phase={phase} {outcome} tasks={tasks}"));
    }

    pub(crate) fn still_waiting(&self, status: &Status) {
        let (waiting, left) = (status.waiting_line(), Short(status.remaining));
        info!(waiting_for = %waiting, %left, "still waiting");
        self.say(|| format!("still waiting         {waiting} left={left}"));
    }

    pub(crate) fn complete(&self, report: &Report) {
        metrics::complete(report);
        let (outcome, took) = (&report.outcome, Short(report.took));
        match outcome {
            Ending::Clean => info!(%outcome, %took, "shutdown complete"),
            Ending::Unclean | Ending::Aborted { .. } => {
                warn!(%outcome, %took, "shutdown complete");
            }
        }
        self.say(|| format!("shutdown complete     outcome={outcome} took={took}"));
    }

    pub(crate) fn failed(&self, what: &str) {
        error!("{what}");
        self.say(|| format!("failed                {what}"));
    }

    fn say(&self, line: impl FnOnce() -> String) {
        let unheard = || tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
        if self.aloud.load(Ordering::Relaxed) && unheard() {
            write_line(&line());
        }
    }
}

/// A line on stderr, with the time of day. What cannot be written is lost: there is nobody to tell.
pub(crate) fn write_line(line: &str) {
    let now = humantime::format_rfc3339_seconds(crate::time::wall_clock()).to_string();
    let clock = now.get(11..19).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "{clock} {line}");
}
