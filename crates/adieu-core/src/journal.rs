//! What is logged and counted while a shutdown runs: one line for each transition, in one place.
//!
//! Noting a line never blocks and calls nothing of the application, so it can be done anywhere;
//! the [`LogThread`] calls subscriber and recorder, in order.

#[cfg(not(feature = "metrics"))]
#[path = "journal/metrics_off.rs"]
mod metrics;
#[cfg(feature = "metrics")]
#[path = "journal/metrics_on.rs"]
mod metrics;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, error, info, warn};

use crate::coordinator::ladder::Rung;
use crate::log_thread::{LogThread, current_dispatch};
use crate::outcome::{Ending, Outcome};
use crate::phase::Phase;
use crate::readiness::{Check, CheckState};
use crate::shield::shielded;
use crate::signals::Signal;
use crate::sync::lock;
use crate::task::Detail;
use crate::time::Short;

/// How long a driver on a current-thread runtime waits for its lines; see [`Journal::catch_up`].
const CATCH_UP: Duration = Duration::from_millis(100);

/// Logs lines through `tracing`, and on stderr if it was asked to and there is no subscriber, so
/// that a first program shows something without any set-up.
pub(crate) struct Journal {
    aloud: AtomicBool,
    thread: LogThread,
    /// The subscriber of the thread on which the shutdown was made, and of the one on which it
    /// began: a subscriber that was set for one thread alone gets the lines, too.
    made_with: Option<Dispatch>,
    begun_with: Mutex<Option<Dispatch>>,
    /// The subscriber did not keep up when a driver last waited for it.
    is_late: AtomicBool,
}

/// One thing that happened.
pub(crate) enum Line {
    Deadline {
        kill_after: Option<Duration>,
        how: String,
    },
    OverBudget {
        check: String,
    },
    Initiated {
        reason: String,
        deadline: Duration,
        plan: String,
    },
    Signal {
        signal: Signal,
        rung: Rung,
    },
    TaskWentWrong {
        phase: Phase,
        task: Arc<str>,
        outcome: Outcome,
        detail: Option<Arc<Detail>>,
        took: Duration,
    },
    PhaseOver {
        phase: Phase,
        outcome: Outcome,
        took: Duration,
        tasks: usize,
    },
    PhaseSkipped {
        phase: Phase,
        outcome: Outcome,
        tasks: usize,
    },
    TaskTooLate {
        phase: Phase,
        task: Arc<str>,
    },
    StillWaiting {
        waiting_for: Arc<Detail>,
        left: Duration,
    },
    Complete {
        outcome: Ending,
        took: Duration,
    },
    CheckChanged {
        check: Check,
    },
    LoopWentWrong {
        name: Arc<str>,
        part: &'static str,
        error: Arc<str>,
        again_in: Option<Duration>,
    },
    /// What an adapter has to say.
    Said {
        what: String,
        is_warning: bool,
    },
    Failed {
        what: String,
    },
}

// === impl Journal ===

impl Journal {
    /// Keeps the subscriber of the calling thread.
    pub(crate) fn new() -> Self {
        Self {
            aloud: AtomicBool::new(false),
            thread: LogThread::default(),
            made_with: current_dispatch(),
            begun_with: Mutex::default(),
            is_late: AtomicBool::new(false),
        }
    }

    /// From now on, lines that no subscriber gets are written to stderr.
    pub(crate) fn speak_up(&self) {
        self.aloud.store(true, Ordering::Relaxed);
    }

    /// From now on, the subscriber of the calling thread gets the lines.
    pub(crate) fn listen_here(&self) {
        *lock(&self.begun_with) = current_dispatch();
    }

    /// Whether a line would be logged or counted.
    pub(crate) fn is_heard(&self) -> bool {
        metrics::COUNTS
            || self.aloud.load(Ordering::Relaxed)
            || LevelFilter::current() != LevelFilter::OFF
    }

    /// Queues a line. Never blocks.
    pub(crate) fn note(&self, line: Line) {
        if !self.is_heard() && !line.asks() {
            return;
        }
        let dispatch = lock(&self.begun_with).clone();
        let dispatch = dispatch.or_else(current_dispatch).or_else(|| self.made_with.clone());
        let aloud = self.aloud.load(Ordering::Relaxed);
        self.thread.submit(dispatch, move || line.emit(aloud));
    }

    /// Waits until every line has been logged.
    pub(crate) async fn idle(&self) {
        self.thread.idle().await;
    }

    /// Blocks until every line has been logged, but no longer than `within`.
    pub(crate) fn flush(&self, within: Duration) {
        let _ = self.thread.flush(within);
    }

    /// Blocks for a moment until the subscriber has caught up; not if it was late the last time and
    /// still is.
    ///
    /// For a driver that shares its thread, and so its clock, with what it describes: in tests with
    /// a paused clock the lines then show the time at which they were noted.
    pub(crate) fn catch_up(&self) {
        if self.thread.is_idle() || self.is_late.load(Ordering::Relaxed) {
            self.is_late.store(!self.thread.is_idle(), Ordering::Relaxed);
            return;
        }
        self.is_late.store(!self.thread.flush(CATCH_UP), Ordering::Relaxed);
    }
}

// === impl Line ===

impl Line {
    /// Counts it, logs it, and writes it to stderr if that is wanted and there is no subscriber.
    fn emit(&self, aloud: bool) {
        // Whatever becomes of one of them, the others are done.
        let _ = shielded(|| metrics::count(self));
        let _ = shielded(|| self.trace());
        if aloud && current_dispatch().is_none() {
            write_line(&self.plain());
        }
    }

    /// Whether logging it finds out something that is wanted elsewhere, too.
    fn asks(&self) -> bool {
        matches!(self, Self::TaskWentWrong { detail: Some(_), .. })
    }

    fn trace(&self) {
        match self {
            Self::Deadline { kill_after, how } => {
                info!(kill_after = %or_never(*kill_after), how, "deadline");
            }
            Self::OverBudget { check } => {
                warn!("the shutdown may be killed before it is over: {check}");
            }
            Self::Initiated { reason, deadline, plan } => {
                info!(%reason, deadline = %Short(*deadline), plan, "shutdown initiated");
            }
            Self::Signal { signal, rung } => {
                let next = rung.next(*signal);
                warn!(%signal, "{signal}: {rung}; {signal} again will {next}");
            }
            Self::TaskWentWrong { phase, task, outcome, detail, took } => {
                let (took, detail) = (Short(*took), detail.as_ref().map(|detail| detail.tell()));
                if *outcome == Outcome::Abandoned {
                    error!(%phase, task = &**task, detail, %took, "task {outcome}");
                } else {
                    warn!(%phase, task = &**task, detail, %took, "task {outcome}");
                }
            }
            Self::PhaseOver { phase, outcome, took, tasks } => {
                info!(%phase, %outcome, took = %Short(*took), tasks, "phase over");
            }
            Self::PhaseSkipped { phase, outcome, tasks } => {
                info!(%phase, %outcome, tasks, "phase skipped");
            }
            Self::TaskTooLate { phase, task } => {
                warn!(%phase, task = &**task, "task refused: its phase has started");
            }
            Self::StillWaiting { waiting_for, left } => {
                info!(waiting_for = %waiting_for.tell(), left = %Short(*left), "still waiting");
            }
            Self::Complete { outcome: outcome @ Ending::Clean, took } => {
                info!(%outcome, took = %Short(*took), "shutdown complete");
            }
            Self::Complete { outcome, took } => {
                warn!(%outcome, took = %Short(*took), "shutdown complete");
            }
            Self::CheckChanged { check: Check { name, state: CheckState::Failed, detail } } => {
                warn!(check = &**name, detail = detail.as_deref(), "check failed");
            }
            Self::CheckChanged { check: Check { name, .. } } => {
                info!(check = &**name, "check well again");
            }
            Self::LoopWentWrong { name, part, error, again_in } => {
                let again_in = again_in.map(|span| Short(span).to_string());
                warn!(name = &**name, error = &**error, again_in, "{part} went wrong");
            }
            Self::Said { what, is_warning: false } => info!("{what}"),
            Self::Said { what, is_warning: true } => warn!("{what}"),
            Self::Failed { what } => error!("{what}"),
        }
    }

    fn plain(&self) -> String {
        match self {
            Self::Deadline { kill_after, how } => {
                format!("deadline              kill-after={} ({how})", or_never(*kill_after))
            }
            Self::OverBudget { check } => format!("over budget           {check}"),
            Self::Initiated { reason, deadline, plan } => {
                let deadline = Short(*deadline);
                format!("shutdown initiated    reason={reason} deadline={deadline} plan={plan}")
            }
            Self::Signal { signal, rung } => {
                format!("{signal:<21} {rung}; {signal} again will {}", rung.next(*signal))
            }
            Self::TaskWentWrong { phase, task, outcome, detail, took: _ } => {
                let text = |detail: &Arc<Detail>| format!(" ({})", detail.tell());
                let detail = detail.as_ref().map_or_else(String::new, text);
                format!("task went wrong       phase={phase} task={task} {outcome}{detail}")
            }
            Self::PhaseOver { phase, outcome, took, tasks } => {
                let took = Short(*took);
                format!("phase over            phase={phase} {outcome} took={took} tasks={tasks}")
            }
            Self::PhaseSkipped { phase, outcome, tasks } => {
                format!("phase skipped         phase={phase} {outcome} tasks={tasks}")
            }
            Self::TaskTooLate { phase, task } => {
                format!("task refused          phase={phase} task={task} (its phase has started)")
            }
            Self::StillWaiting { waiting_for, left } => {
                let waiting_for = waiting_for.tell();
                format!("still waiting         {waiting_for} left={}", Short(*left))
            }
            Self::Complete { outcome, took } => {
                format!("shutdown complete     outcome={outcome} took={}", Short(*took))
            }
            Self::CheckChanged { check: Check { name, state: CheckState::Failed, detail } } => {
                let detail = detail.as_ref().map_or_else(String::new, |text| format!(" ({text})"));
                format!("check failed          check={name}{detail}")
            }
            Self::CheckChanged { check: Check { name, .. } } => {
                format!("check well again      check={name}")
            }
            Self::LoopWentWrong { name, part, error, again_in } => {
                let part = format!("{part} went wrong");
                let again =
                    again_in.map_or_else(String::new, |span| format!(" again in {}", Short(span)));
                format!("{part:<21} name={name} {error}{again}")
            }
            Self::Said { what, is_warning: _ } => what.clone(),
            Self::Failed { what } => format!("failed                {what}"),
        }
    }
}

fn or_never(span: Option<Duration>) -> String {
    span.map_or_else(|| "never".into(), |span| Short(span).to_string())
}

/// A line on stderr, with the time of day. What cannot be written is lost: there is nobody to tell.
pub(crate) fn write_line(line: &str) {
    let now = humantime::format_rfc3339_seconds(crate::time::wall_clock()).to_string();
    let clock = now.get(11..19).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "{clock} {line}");
}
