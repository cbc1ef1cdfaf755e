//! What is said while a shutdown runs: one line a transition, in one place.
//!
//! Whoever listens may block: a full pipe, a slow disk, a lock in a subscriber. So noting a line
//! never speaks, and can be done anywhere; speaking is for those who can afford to be held up, and
//! only one does it at a time, in order, while the others go on.

#[cfg(not(feature = "metrics"))]
#[path = "journal/metrics_off.rs"]
mod metrics;
#[cfg(feature = "metrics")]
#[path = "journal/metrics_on.rs"]
mod metrics;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing::{error, info, warn};

use crate::coordinator::ladder::Rung;
use crate::outcome::{Ending, Outcome};
use crate::phase::Phase;
use crate::readiness::{Check, CheckState};
use crate::signals::Signal;
use crate::sync::lock;
use crate::task::Detail;
use crate::time::{Short, real_now};

/// Lines beyond this many are lost while nobody can speak.
const MOST_LINES: usize = 10_000;

/// Keeps lines until somebody says them: through `tracing`, and on stderr if it was asked to and
/// nobody listens to `tracing`, so that a first program shows something without any set-up.
#[derive(Default)]
pub(crate) struct Journal {
    aloud: AtomicBool,
    lines: Mutex<VecDeque<Line>>,
    /// Held by the one who speaks.
    turn: Mutex<()>,
    /// A subscriber that was set for one thread alone shall hear of it, too.
    dispatch: Mutex<Option<tracing::Dispatch>>,
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
    /// From now on, what nobody else would hear is written to stderr.
    pub(crate) fn speak_up(&self) {
        self.aloud.store(true, Ordering::Relaxed);
    }

    /// From now on, the subscriber of the calling thread hears it.
    pub(crate) fn listen_here(&self) {
        *lock(&self.dispatch) = Some(tracing::dispatcher::get_default(Clone::clone));
    }

    /// Whether anybody would hear a line, or count it.
    pub(crate) fn is_heard(&self) -> bool {
        metrics::COUNTS
            || self.aloud.load(Ordering::Relaxed)
            || LevelFilter::current() != LevelFilter::OFF
    }

    /// Keeps a line. Never blocks for long.
    pub(crate) fn note(&self, line: Line) {
        metrics::count(&line);
        if !self.is_heard() && !line.asks() {
            return;
        }
        let mut lines = lock(&self.lines);
        if lines.len() < MOST_LINES {
            lines.push_back(line);
        }
    }

    /// Says what has been noted, unless somebody else is at it. Not to be called under a lock.
    pub(crate) fn speak(&self) {
        // Looked at again after the turn is over: a line may have been noted just before.
        while !lock(&self.lines).is_empty() {
            let _turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let dispatch = lock(&self.dispatch).clone();
            while let Some(line) = self.next() {
                match &dispatch {
                    Some(dispatch) => {
                        tracing::dispatcher::with_default(dispatch, || self.say(&line));
                    }
                    None => self.say(&line),
                }
            }
        }
    }

    /// Notes a line and says it.
    pub(crate) fn tell(&self, line: Line) {
        self.note(line);
        self.speak();
    }

    /// Waits until all has been said, but only so long.
    pub(crate) fn flush(&self, within: Duration) {
        let give_up = real_now() + within;
        loop {
            self.speak();
            let said = lock(&self.lines).is_empty()
                && !matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock));
            if said || real_now() >= give_up {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn next(&self) -> Option<Line> {
        lock(&self.lines).pop_front()
    }

    fn say(&self, line: &Line) {
        line.trace();
        let unheard = || tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
        if self.aloud.load(Ordering::Relaxed) && unheard() {
            write_line(&line.plain());
        }
    }
}

// === impl Line ===

impl Line {
    /// Whether saying it finds out something that is wanted elsewhere, too.
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
