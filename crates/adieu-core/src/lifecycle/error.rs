//! The errors of building, starting and stopping a lifecycle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::coordinator::AddPhaseError;
use crate::names::joined;
use crate::reason::Reason;
use crate::task::{AddTaskError, chain};
use crate::time::Short;

/// Why steps form no valid lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A step needs an id, which appears in logs and reports.
    #[error("a step has an empty id")]
    EmptyId,
    /// Two steps have the same id.
    #[error("two steps have the id {step}: rename one")]
    DuplicateId {
        /// The id.
        step: Arc<str>,
    },
    /// Two steps provide the same capability.
    #[error("capability {capability} is provided twice, by {} and {}: rename one", by[0], by[1])]
    ProvidedTwice {
        /// The capability.
        capability: Arc<str>,
        /// The steps that provide it.
        by: [Arc<str>; 2],
    },
    /// No step provides a capability that a step requires.
    #[error("step {step} requires {capability}, which no step provides{}", did_you_mean(near))]
    Unmet {
        /// The step.
        step: Arc<str>,
        /// The capability that it requires.
        capability: Arc<str>,
        /// The capability that was probably meant.
        near: Option<Arc<str>>,
    },
    /// A step depends on a step that does not exist.
    #[error("step {step} depends on unknown step {depends_on}{}", did_you_mean(near))]
    Unknown {
        /// The step.
        step: Arc<str>,
        /// The id that it depends on.
        depends_on: Arc<str>,
        /// The id that was probably meant.
        near: Option<Arc<str>>,
    },
    /// Steps wait for each other.
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
    /// A timeout is one year at most.
    #[error("step {step} has a timeout longer than the maximum (one year)")]
    TimeoutTooLong {
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
    /// In a fleet every replica would change the shared state at the same time.
    #[error(
        "in a fleet, steps that change shared state must be guarded, so that one replica at a time \
         runs them; unguarded steps: {}; guard each with Fleet::singleton, or with a lock of your \
         own and Step::singleton_guarded",
        joined(steps, ", ")
    )]
    Unguarded {
        /// All of them, sorted.
        steps: Vec<Arc<str>>,
    },
    /// A serverless process does not live on between requests.
    #[error(
        "a serverless process does not live on between requests, but these steps need that: {}; \
         remove them, or choose another profile",
        joined(steps, ", ")
    )]
    LongRunning {
        /// All of them, sorted.
        steps: Vec<Arc<str>>,
    },
}

/// Why a lifecycle did not start. The steps that had started were stopped, as far as possible.
///
/// [`Display`](fmt::Display) writes one line for each failure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The shutdown had already begun. No step was started.
    ShuttingDown,
    /// There is no tokio runtime. No step was started.
    NoRuntime,
    /// The shutdown rejected a task that stops a step. No step was started.
    NoTask(AddTaskError),
    /// The shutdown rejected the phase in which steps are stopped. No step was started.
    NoPhase(AddPhaseError),
    /// A step failed, and the steps that had started were stopped.
    Failed {
        /// The first failure.
        cause: StepError,
        /// Starts that were cancelled because of it, and stops that failed.
        others: Vec<StepError>,
    },
    /// The shutdown began during start-up, and stopped the steps that had started.
    Interrupted {
        /// The reason of the shutdown.
        reason: Reason,
        /// Starts that did not end when they were cancelled, and stops that failed.
        others: Vec<StepError>,
    },
}

/// A failure of a step, or of a loop that a step has added.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepError {
    /// The id of the step, or the name of the loop.
    pub name: Arc<str>,
    /// The action that failed.
    pub action: StepAction,
    /// How it failed.
    pub failure: StepFailure,
}

/// The action that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepAction {
    /// A step was being started.
    Start,
    /// A step was being stopped.
    Stop,
    /// A loop was being ended.
    EndLoop,
}

/// How a start, a stop or a loop failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StepFailure {
    /// It returned an error.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// It panicked.
    Panicked(Arc<str>),
    /// It exceeded its timeout. It was cancelled and, if it did not end, aborted.
    TimedOut(Duration),
    /// It was cancelled because another step failed or the shutdown began, did not end, and was
    /// aborted.
    Cancelled,
    /// It blocks its thread, and is still running.
    Abandoned,
    /// The time of the phase had elapsed before its turn came.
    NotReached,
}

fn did_you_mean(near: &Option<Arc<str>>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

// === impl StartError ===

impl StartError {
    /// Returns the first failure; `None` if no step failed.
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

    /// Returns the other failures: starts that were cancelled, and stops that failed.
    #[must_use]
    pub fn others(&self) -> &[StepError] {
        match self {
            Self::Failed { others, .. } | Self::Interrupted { others, .. } => others,
            Self::ShuttingDown | Self::NoRuntime | Self::NoTask(_) | Self::NoPhase(_) => &[],
        }
    }

    /// Returns whether the shutdown prevented the start. That is not a failure of the process.
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
    /// Returns the error of the step, if it returned one.
    #[must_use]
    pub fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.failure {
            StepFailure::Failed(error) => Some(&**error),
            StepFailure::Panicked(_)
            | StepFailure::TimedOut(_)
            | StepFailure::Cancelled
            | StepFailure::Abandoned
            | StepFailure::NotReached => None,
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, action, failure } = self;
        match action {
            StepAction::Start => write!(f, "step {name} did not start: {failure}"),
            StepAction::Stop => write!(f, "step {name} did not stop: {failure}"),
            StepAction::EndLoop => write!(f, "loop {name} did not end: {failure}"),
        }
    }
}

impl std::error::Error for StepError {}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => f.write_str(&chain(&**error)),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::TimedOut(after) => write!(f, "timed out after {}", Short(*after)),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Abandoned => f.write_str("abandoned: still running"),
            Self::NotReached => f.write_str("not reached: the time of the phase had elapsed"),
        }
    }
}
