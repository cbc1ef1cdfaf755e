//! Why a call did not succeed: refused by the policy, out of time, or failed itself.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Short, Verdict};

/// Why a call through a policy did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError<E> {
    /// The policy refused the call. Nothing of it was done.
    Refused(Refused),
    /// The call was dropped when its time was up. The backend may have processed it.
    TimedOut {
        /// How long the attempt took.
        after: Duration,
    },
    /// The call failed with its own error.
    Failed(E),
}

/// A policy refused a call. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy} refused the call: {code}, try again in {}", Short(*.retry_after))]
pub struct Refused {
    policy: Arc<str>,
    code: Code,
    retry_after: Duration,
}

/// The part of a policy that refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The rate limit has no permit.
    RateLimited,
    /// The bulkhead has no slot, and its queue no place.
    Full,
    /// The call waited too long for a slot, or had to make room for a more critical one.
    Shed,
    /// The breaker is open.
    Open,
    /// The breaker was opened by [`Policy::force_open`](crate::Policy::force_open).
    ForcedOpen,
    /// The throttle refuses the excess.
    Throttled,
    /// The call's deadline passed before it was begun.
    Deadline,
    /// The store of a shared rate limit did not answer, and the limit admits no call without it.
    StoreAway,
}

// === impl CallError ===

impl<E> CallError<E> {
    /// Returns the refusal, if the policy refused the call.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::TimedOut { .. } | Self::Failed(_) => None,
        }
    }
}

impl<E> From<Refused> for CallError<E> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::TimedOut { after } => write!(f, "the call timed out after {}", Short(*after)),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(_) | Self::TimedOut { .. } => None,
            Self::Failed(error) => error.source(),
        }
    }
}

// === impl Refused ===

impl Refused {
    pub(crate) fn new(policy: &Arc<str>, code: Code, retry_after: Duration) -> Self {
        Self { policy: Arc::clone(policy), code, retry_after }
    }

    /// Returns the policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the part of the policy that refused.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns how long to wait before trying again.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Returns what a queue consumer should do with the message.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::Requeue { after: self.retry_after }
    }
}

// === impl Code ===

impl Code {
    pub(crate) const ALL: [Self; 8] = [
        Self::RateLimited,
        Self::Full,
        Self::Shed,
        Self::Open,
        Self::ForcedOpen,
        Self::Throttled,
        Self::Deadline,
        Self::StoreAway,
    ];

    /// Returns the code as text, by which programs distinguish refusals.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate-limited",
            Self::Full => "full",
            Self::Shed => "shed",
            Self::Open => "open",
            Self::ForcedOpen => "forced-open",
            Self::Throttled => "throttled",
            Self::Deadline => "deadline",
            Self::StoreAway => "store-away",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
