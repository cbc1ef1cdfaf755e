//! How a task, a phase or a whole shutdown ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a task ended. A phase ended as the worst of its tasks did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Outcome {
    /// It did what it had to.
    Finished,
    /// It never ran.
    Skipped {
        /// Why not.
        because: SkipCause,
    },
    /// It was told to stop by a hard stop, and stopped by itself.
    Cancelled,
    /// It was told to stop by a hard stop, did not, and was aborted.
    Aborted,
    /// It said that it failed.
    Failed {
        /// What it said, with its causes.
        error: Arc<str>,
    },
    /// It panicked.
    Panicked {
        /// The panic's message.
        message: Arc<str>,
    },
    /// Its time was up: it was cancelled and, if need be, aborted.
    TimedOut {
        /// How long it had had.
        #[serde(with = "crate::time::millis", rename = "after_ms")]
        after: Duration,
    },
    /// Its time was up and it could not be ended: blocking code, which is still running.
    Abandoned,
}

/// Why something never ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SkipCause {
    /// The phase is disabled.
    Disabled,
    /// The shutdown was told to begin at a later phase.
    BeforeFrom,
    /// A phase that does not recover went wrong.
    Broken {
        /// That phase.
        phase: String,
    },
    /// A hard stop: only the closing phases still run.
    HardStop,
    /// What was left of the deadline belongs to the closing phases.
    OutOfTime,
    /// It was added when its phase had started or was over.
    TooLate,
}

/// How a shutdown ended as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ending {
    /// Everything that had to be done was done.
    Clean,
    /// All phases are over, but something failed, was cut short or was given up.
    Unclean,
    /// A phase that does not recover went wrong; the phases after it did not run.
    Aborted {
        /// That phase.
        phase: String,
    },
}

// === impl Outcome ===

impl Outcome {
    /// Whether nothing went wrong: it finished, or was not to run.
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

    /// One sign for it, so that it can be told apart without colour.
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

    /// The higher, the worse.
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
            Self::Broken { phase } => write!(f, "{phase} went wrong and does not recover"),
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
