//! Why a lifecycle cannot be, and what went wrong when it was started or stopped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::coordinator::AddPhaseError;
use crate::names::joined;
use crate::reason::Reason;
use crate::task::{AddTaskError, chain};
use crate::time::Short;

/// Why steps do not make a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A step needs an id: it is what is said when it is waited for.
    #[error("a step has an empty id")]
    EmptyId,
    /// Two steps have the same id.
    #[error("two steps have the id {step}: rename one")]
    DuplicateId {
        /// The id.
        step: Arc<str>,
    },
    /// Who requires it would not know whom to wait for.
    #[error("capability {capability} is provided twice, by {} and {}: rename one", by[0], by[1])]
    ProvidedTwice {
        /// The capability.
        capability: Arc<str>,
        /// The steps that provide it.
        by: [Arc<str>; 2],
    },
    /// Nobody provides what a step requires.
    #[error("step {step} requires {capability}, which no step provides{}", did_you_mean(near))]
    Unmet {
        /// The step.
        step: Arc<str>,
        /// What it requires.
        capability: Arc<str>,
        /// What was probably meant.
        near: Option<Arc<str>>,
    },
    /// A step depends on one that is not there.
    #[error("step {step} depends on unknown step {depends_on}{}", did_you_mean(near))]
    Unknown {
        /// The step.
        step: Arc<str>,
        /// What it depends on.
        depends_on: Arc<str>,
        /// What was probably meant.
        near: Option<Arc<str>>,
    },
    /// Steps that wait for each other would wait for ever.
    #[error("steps wait for each other: {}", joined(path, " -> "))]
    Cycle {
        /// Each depends on the next; the first is also the last.
        path: Vec<Arc<str>>,
    },
    /// A timeout of zero would fail the step at once.
    #[error("step {step} has a timeout of zero")]
    ZeroTimeout {
        /// The step.
        step: Arc<str>,
    },
    /// Nothing may wait for ever.
    #[error("step {step} has an endless timeout: a year is the most")]
    EndlessTimeout {
        /// The step.
        step: Arc<str>,
    },
    /// An adapter that wraps the step has found that it cannot work; see
    /// [`Step::refuse`](crate::Step::refuse).
    #[error("step {step} cannot work: {why}")]
    Refused {
        /// The step.
        step: Arc<str>,
        /// The reason.
        why: Arc<str>,
    },
    /// In a fleet every replica would do it, at the same time.
    #[error(
        "in a fleet, steps that change shared state must be guarded, so that one replica at a time \
         does it; these are not: {}",
        joined(steps, ", ")
    )]
    Unguarded {
        /// All of them, sorted.
        steps: Vec<Arc<str>>,
    },
    /// A serverless process does not live on.
    #[error(
        "a serverless process does not live on, and these steps need it to: {}",
        joined(steps, ", ")
    )]
    LongRunning {
        /// All of them, sorted.
        steps: Vec<Arc<str>>,
    },
}

/// Why a lifecycle did not start. What had started has been stopped, as far as that was possible.
///
/// [`Display`](fmt::Display) says all of it, one line for each thing that went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The shutdown had begun before; nothing was started.
    ShuttingDown,
    /// There is no tokio runtime to start on; nothing was started.
    NoRuntime,
    /// The shutdown did not take on what is to be stopped; nothing was started.
    NoTask(AddTaskError),
    /// The shutdown did not take on the phase in which steps are stopped; nothing was started.
    NoPhase(AddPhaseError),
    /// A step failed, and the others were stopped.
    Failed {
        /// What went wrong first.
        cause: StepError,
        /// What went wrong because of it, and while stopping the others.
        others: Vec<StepError>,
    },
    /// The shutdown began in mid start-up, and has stopped what had started.
    Interrupted {
        /// Why it began.
        reason: Reason,
        /// What went wrong while starts were cancelled and steps were stopped.
        others: Vec<StepError>,
    },
}

/// One thing that went wrong in a lifecycle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepError {
    /// The step, or the loop, in question.
    pub name: Arc<str>,
    /// What was being done.
    pub act: Act,
    /// What went wrong.
    pub problem: Problem,
}

/// What was being done when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// A step was being started.
    Start,
    /// A step was being stopped.
    Stop,
    /// A loop was being ended.
    EndLoop,
}

/// What went wrong with a step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// It said that it failed.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// It panicked.
    Panicked(Arc<str>),
    /// Its time was up: it was cancelled and, if need be, aborted.
    TimedOut(Duration),
    /// It was told to stop because something else went wrong or the shutdown began, and did not
    /// end by itself.
    Cancelled,
    /// It could not be ended, and is still running: blocking code.
    Abandoned,
    /// The time was up before its turn came.
    NotReached,
}

fn did_you_mean(near: &Option<Arc<str>>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

// === impl StartError ===

impl StartError {
    /// What went wrong first; `None` if it was no step that did.
    #[must_use]
    pub fn cause(&self) -> Option<&StepError> {
        match self {
            Self::Failed { cause, .. } => Some(cause),
            Self::ShuttingDown
            | Self::NoRuntime
            | Self::NoTask(_)
            | Self::NoPhase(_)
            | Self::Interrupted { .. } => None,
        }
    }

    /// What else went wrong: starts that were cancelled, and stops that failed.
    #[must_use]
    pub fn others(&self) -> &[StepError] {
        match self {
            Self::Failed { others, .. } | Self::Interrupted { others, .. } => others,
            Self::ShuttingDown | Self::NoRuntime | Self::NoTask(_) | Self::NoPhase(_) => &[],
        }
    }

    /// Whether it was the shutdown that kept it from starting. That is no failure: a process can be
    /// told to end before it has begun.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Interrupted { .. })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed to start up: ")?;
        match self {
            Self::ShuttingDown => f.write_str("the shutdown has begun"),
            Self::NoRuntime => f.write_str("there is no tokio runtime"),
            Self::NoTask(error) => f.write_str(&chain(error)),
            Self::NoPhase(error) => f.write_str(&chain(error)),
            Self::Failed { cause, .. } => write!(f, "{cause}"),
            Self::Interrupted { reason, .. } => write!(f, "the shutdown began ({reason})"),
        }?;
        self.others().iter().try_for_each(|other| write!(f, "\n  {other}"))
    }
}

impl std::error::Error for StartError {}

// === impl StepError ===

impl StepError {
    /// The error that the step failed with, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Failed(error) => Some(&**error),
            Problem::Panicked(_)
            | Problem::TimedOut(_)
            | Problem::Cancelled
            | Problem::Abandoned
            | Problem::NotReached => None,
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, act, problem } = self;
        match act {
            Act::Start => write!(f, "step {name} did not start: {problem}"),
            Act::Stop => write!(f, "step {name} did not stop: {problem}"),
            Act::EndLoop => write!(f, "loop {name} did not end: {problem}"),
        }
    }
}

impl std::error::Error for StepError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => f.write_str(&chain(&**error)),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::TimedOut(after) => write!(f, "timed out after {}", Short(*after)),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Abandoned => f.write_str("abandoned: still running"),
            Self::NotReached => f.write_str("the time was up before its turn came"),
        }
    }
}
