//! How a task, a phase or a whole shutdown ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a task ended. The outcome of a phase is the worst outcome of its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Outcome {
    /// The task returned without an error.
    Finished,
    /// The task never ran.
    Skipped {
        /// Why it did not run.
        because: SkipCause,
    },
    /// A hard stop cancelled the task, and it ended.
    Cancelled,
    /// A hard stop cancelled the task. It did not end, and was aborted.
    Aborted,
    /// The task returned an error.
    Failed {
        /// The error, with its causes.
        error: Arc<str>,
    },
    /// The task panicked.
    Panicked {
        /// The message of the panic.
        message: Arc<str>,
    },
    /// The task exceeded its time. It was cancelled and, if it did not end, aborted.
    TimedOut {
        /// The time that it had.
        #[serde(with = "crate::time::millis", rename = "after_ms")]
        after: Duration,
    },
    /// The task exceeded its time, blocks its thread, and is still running.
    Abandoned,
}

/// Why a phase or a task did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SkipCause {
    /// The phase is disabled.
    Disabled,
    /// The shutdown began at a later phase.
    BeforeFrom,
    /// A phase that does not recover failed.
    Broken {
        /// That phase.
        phase: String,
    },
    /// A hard stop: only the closing phases still run.
    HardStop,
    /// The remaining time was reserved for the closing phases.
    OutOfTime,
    /// The task was added after its phase had started.
    TooLate,
}

/// How a shutdown ended as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ending {
    /// Every phase and every task finished, or was not meant to run.
    Clean,
    /// All phases are over, but a task failed, was cut short or was abandoned.
    Unclean,
    /// A phase that does not recover failed, and the phases after it did not run.
    Aborted {
        /// That phase.
        phase: String,
    },
}

// === impl Outcome ===

impl Outcome {
    /// Returns whether the task finished or was not meant to run.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        match self {
            Self::Finished => true,
            Self::Skipped { because } => because.is_clean(),
            Self::Cancelled
            | Self::Aborted
            | Self::Failed { .. }
            | Self::Panicked { .. }
            | Self::TimedOut { .. }
            | Self::Abandoned => false,
        }
    }

    /// Returns one character for the outcome, so that outcomes can be distinguished without colour.
    #[must_use]
    pub fn sign(&self) -> char {
        match self {
            Self::Finished => '+',
            Self::Skipped { .. } => '-',
            Self::Cancelled | Self::Aborted => 'x',
            Self::Failed { .. } | Self::Panicked { .. } => '!',
            Self::TimedOut { .. } => '>',
            Self::Abandoned => '?',
        }
    }

    /// Returns the rank of the outcome: a higher value is worse.
    pub(crate) fn severity(&self) -> u8 {
        match self {
            Self::Finished => 0,
            Self::Skipped { .. } => 1,
            Self::Cancelled => 2,
            Self::Aborted => 3,
            Self::Failed { .. } => 4,
            Self::Panicked { .. } => 5,
            Self::TimedOut { .. } => 6,
            Self::Abandoned => 7,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::Skipped { because } => write!(f, "skipped: {because}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Aborted => f.write_str("aborted"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::TimedOut { after } => {
                write!(f, "timed out after {}", crate::time::Short(*after))
            }
            Self::Abandoned => f.write_str("abandoned: still running"),
        }
    }
}

// === impl SkipCause ===

impl SkipCause {
    fn is_clean(&self) -> bool {
        match self {
            Self::Disabled | Self::BeforeFrom | Self::TooLate => true,
            Self::Broken { .. } | Self::HardStop | Self::OutOfTime => false,
        }
    }
}

impl fmt::Display for SkipCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::BeforeFrom => f.write_str("the shutdown began at a later phase"),
            Self::Broken { phase } => write!(f, "{phase} failed and does not recover"),
            Self::HardStop => f.write_str("hard stop"),
            Self::OutOfTime => f.write_str("out of time"),
            Self::TooLate => f.write_str("added after the phase had started"),
        }
    }
}

// === impl Ending ===

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean"),
            Self::Unclean => f.write_str("unclean"),
            Self::Aborted { phase } => write!(f, "aborted by {phase}"),
        }
    }
}
