//! Logs and counts the transitions of a shutdown, one line for each.
//!
//! Each line is a `tracing` event: a short name, and fields. Subscribers receive the event; the
//! layout on stderr is derived from the same event.
//!
//! Queueing a line never blocks and calls no code of the application, so it is allowed anywhere.
//! The [`LogThread`] calls the subscriber and the recorder, in the order of the lines.

#[cfg(not(feature = "metrics"))]
#[path = "journal/metrics_off.rs"]
mod metrics;
#[cfg(feature = "metrics")]
#[path = "journal/metrics_on.rs"]
mod metrics;
mod stderr;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, error, info, warn};

use crate::log_thread::{LogProgress, LogThread, current_dispatch, fall_back_to};
use crate::outcome::{Ending, Outcome};
use crate::park;
use crate::phase::Phase;
use crate::readiness::{Check, CheckState};
use crate::rung::Rung;
use crate::shield::shielded;
use crate::signals::Signal;
use crate::sync::{assert_none_held, lock};
use crate::task::{Describers, Detail};
use crate::time::{Short, real_now};

pub(crate) use stderr::{event_line, write_line};

/// How often a start-up or a shutdown that makes no progress reports what it waits for: in the log, and
/// to systemd.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// How long a driver on a current-thread runtime waits for its lines; see [`Journal::catch_up`].
const CATCH_UP: Duration = Duration::from_millis(100);

/// How long a line, or a caller of [`Journal::describe_now`], waits for a description.
const ANSWER: Duration = Duration::from_millis(100);

/// Logs lines through `tracing`, or on stderr if that was requested and there is no subscriber.
///
/// The fallback to stderr lets a first program show its shutdown without any set-up.
pub(crate) struct Journal {
    on_stderr: AtomicBool,
    thread: LogThread,
    describers: Describers,
    /// The subscriber of the thread that created the shutdown. A subscriber that is set for one
    /// thread only receives the lines through this field and the next one.
    made_with: Option<Dispatch>,
    /// The subscriber of the thread that began the shutdown.
    begun_with: Mutex<Option<Dispatch>>,
    /// True if the subscriber did not keep up when a driver last waited for it.
    is_late: AtomicBool,
}

/// One event of the shutdown.
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
        phases: usize,
        worst_case: Duration,
        /// The minimum time for admitted work to drain; `None` unless only the deadline limits it.
        drain_window: Option<Duration>,
    },
    /// A signal, or a request that has the effect of one.
    Signal {
        signal: Signal,
        via: Option<&'static str>,
        rung: Rung,
    },
    TaskFailed {
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
    /// Accepted work that was not finished and that no task has reported.
    Unfinished {
        name: Arc<str>,
        what: Arc<Detail>,
    },
    Complete {
        outcome: Ending,
        took: Duration,
    },
    CheckChanged {
        check: Check,
    },
    LoopFailed {
        name: Arc<str>,
        part: &'static str,
        error: Arc<str>,
        retry_in: Option<Duration>,
    },
}

// === impl Journal ===

impl Journal {
    /// Creates a journal that keeps the subscriber of the calling thread.
    pub(crate) fn new() -> Self {
        Self {
            on_stderr: AtomicBool::new(false),
            thread: LogThread::default(),
            describers: Describers::default(),
            made_with: current_dispatch(),
            begun_with: Mutex::default(),
            is_late: AtomicBool::new(false),
        }
    }

    /// Makes the journal write lines to stderr if there is no subscriber. The same holds for lines
    /// that belong to no shutdown.
    pub(crate) fn use_stderr(&self) {
        fall_back_to(|emit| stderr::with_layout(emit));
        self.on_stderr.store(true, Ordering::Relaxed);
    }

    /// Sends further lines to the subscriber of the calling thread.
    pub(crate) fn listen_here(&self) {
        *lock(&self.begun_with) = current_dispatch();
    }

    /// Returns whether a line would be logged or counted.
    pub(crate) fn is_heard(&self) -> bool {
        metrics::COUNTS
            || self.on_stderr.load(Ordering::Relaxed)
            || LevelFilter::current() != LevelFilter::OFF
    }

    /// Queues a line, and the description that it needs. Never blocks.
    pub(crate) fn note(&self, line: Line) {
        assert_none_held("logged a line");
        let is_heard = self.is_heard();
        if let Some(detail) = line.detail(is_heard) {
            self.describers.submit(Arc::clone(detail));
        }
        if is_heard {
            self.submit(move || line.emit());
        }
    }

    /// Requests a description of the application, and waits up to 100 ms for the answer.
    pub(crate) fn describe_now(&self, detail: &Arc<Detail>) -> String {
        self.describers.submit(Arc::clone(detail));
        detail.wait(ANSWER)
    }

    /// Requests descriptions of the application, and waits up to 100 ms for all answers together.
    pub(crate) fn describe_all<'a>(&self, details: impl Iterator<Item = &'a Arc<Detail>> + Clone) {
        details.clone().for_each(|detail| self.describers.submit(Arc::clone(detail)));
        let end = real_now() + ANSWER;
        for detail in details {
            let _ = detail.wait(end.saturating_duration_since(real_now()));
        }
    }

    /// Queues a `tracing` event, which `emit` logs on another thread. Never blocks.
    pub(crate) fn log(&self, emit: impl FnOnce() + Send + 'static) {
        assert_none_held("logged a line");
        if self.is_heard() {
            self.submit(emit);
        }
    }

    /// Queues a `tracing` event as [`Journal::log`] does, but not for stderr.
    pub(crate) fn log_to_subscriber(&self, emit: impl FnOnce() + Send + 'static) {
        self.log(move || {
            if current_dispatch().is_some() {
                emit();
            }
        });
    }

    fn submit(&self, emit: impl FnOnce() + Send + 'static) {
        let dispatch = lock(&self.begun_with).clone();
        let dispatch = dispatch.or_else(current_dispatch).or_else(|| self.made_with.clone());
        let on_stderr = self.on_stderr.load(Ordering::Relaxed);
        self.thread.submit(dispatch, move || {
            if on_stderr && current_dispatch().is_none() {
                stderr::with_layout(emit);
            } else {
                emit();
            }
        });
    }

    /// Waits until every line has been logged and every description has been made.
    pub(crate) async fn idle(&self) {
        self.thread.idle().await;
        self.describers.idle().await;
    }

    /// Blocks until the journal is [idle](Journal::idle). Returns false if that takes longer than
    /// `within`.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        park::block_on_until(pin!(self.idle()), real_now() + within).is_some()
    }

    /// Returns whether the subscriber is blocked, for code that calls it on another thread.
    pub(crate) fn progress(&self) -> LogProgress {
        self.thread.progress()
    }

    fn is_idle(&self) -> bool {
        self.thread.is_idle() && self.describers.is_idle()
    }

    /// Blocks for up to 100 ms until the subscriber has caught up. Returns at once if the subscriber
    /// was late the last time and still is.
    ///
    /// For a driver on a current-thread runtime, which shares its clock with the tasks: in tests with
    /// a paused clock, the lines then show the time at which they were queued.
    pub(crate) fn catch_up(&self) {
        if self.is_idle() || self.is_late.load(Ordering::Relaxed) {
            self.is_late.store(!self.is_idle(), Ordering::Relaxed);
            return;
        }
        self.is_late.store(!self.flush(CATCH_UP), Ordering::Relaxed);
    }
}

// === impl Line ===

impl Line {
    /// Counts the line, then logs it. A recorder that panics does not prevent the logging.
    fn emit(&self) {
        let _ = shielded(|| metrics::count(self));
        self.trace();
    }

    /// Returns the description that the line or the report needs.
    ///
    /// The report contains the details of failed tasks even if no line is logged.
    fn detail(&self, is_heard: bool) -> Option<&Arc<Detail>> {
        match self {
            Self::TaskFailed { detail, .. } => detail.as_ref(),
            Self::Unfinished { what, .. } => Some(what),
            Self::StillWaiting { waiting_for, .. } if is_heard => Some(waiting_for),
            Self::Deadline { .. }
            | Self::OverBudget { .. }
            | Self::Initiated { .. }
            | Self::Signal { .. }
            | Self::PhaseOver { .. }
            | Self::PhaseSkipped { .. }
            | Self::TaskTooLate { .. }
            | Self::StillWaiting { .. }
            | Self::Complete { .. }
            | Self::CheckChanged { .. }
            | Self::LoopFailed { .. } => None,
        }
    }

    /// Logs the line as a `tracing` event: a short name, and fields.
    fn trace(&self) {
        match self {
            Self::Deadline { kill_after, how } => {
                info!(kill_after = %or_never(*kill_after), source = how, "deadline");
            }
            Self::OverBudget { check } => warn!(problem = check, "over budget"),
            Self::Initiated { reason, deadline, phases, worst_case, drain_window } => {
                let drain_window = drain_window.map(|window| Short(window).to_string());
                let (deadline, worst_case) = (Short(*deadline), Short(*worst_case));
                info!(
                    %reason, %deadline, phases, %worst_case, at_least_to_drain = drain_window,
                    "shutdown initiated"
                );
            }
            Self::Signal { signal, via, rung } => {
                let next = rung.next(*signal);
                match via {
                    Some(via) => {
                        warn!(via, effect = %rung, if_repeated = %next, "stop requested");
                    }
                    None => {
                        warn!(%signal, effect = %rung, if_repeated = %next, "signal received");
                    }
                }
            }
            Self::TaskFailed { phase, task, outcome, detail, took } => {
                let (took, detail) =
                    (Short(*took), detail.as_ref().map(|detail| detail.wait(ANSWER)));
                if *outcome == Outcome::Abandoned {
                    error!(%phase, task = &**task, %outcome, detail, %took, "task failed");
                } else {
                    warn!(%phase, task = &**task, %outcome, detail, %took, "task failed");
                }
            }
            Self::PhaseOver { phase, outcome, took, tasks } => {
                info!(%phase, %outcome, took = %Short(*took), tasks, "phase over");
            }
            Self::PhaseSkipped { phase, outcome, tasks } => {
                info!(%phase, %outcome, tasks, "phase skipped");
            }
            Self::TaskTooLate { phase, task } => {
                warn!(%phase, task = &**task, why = "the phase has started", "task rejected");
            }
            Self::StillWaiting { waiting_for, left } => {
                info!(waiting_for = %waiting_for.wait(ANSWER), left = %Short(*left), "still waiting");
            }
            Self::Unfinished { name, what } => {
                warn!(name = &**name, what = %what.wait(ANSWER), "accepted work not finished");
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
                info!(check = &**name, "check recovered");
            }
            Self::LoopFailed { name, part, error, retry_in } => {
                let retry_in = retry_in.map(|span| Short(span).to_string());
                warn!(name = &**name, error = &**error, retry_in, "{part} failed");
            }
        }
    }
}

fn or_never(span: Option<Duration>) -> String {
    span.map_or_else(|| "never".into(), |span| Short(span).to_string())
}
