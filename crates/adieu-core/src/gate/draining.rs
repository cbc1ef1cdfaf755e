//! The refusal of a gate that admits no work.

use std::time::Duration;

/// When refused work should be tried again, unless [`Gate::set_retry_after`](super::Gate::set_retry_after)
/// sets another time.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The gate admits no work: nothing of this work was done.
///
/// It is worth trying again, elsewhere or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("draining: try again in {}", crate::time::Short(self.retry_after()))]
pub struct Draining {
    // Not a `Duration`: a `Result<Pass, Draining>` should be no larger than a pass.
    retry_after_ms: u32,
}

/// How a queue consumer should settle a message that was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Return the message to the queue, for another consumer or for later, and do not count it as a
    /// failure.
    Requeue {
        /// How long the message should wait at least.
        after: Duration,
    },
}

// === impl Draining ===

impl Draining {
    /// The code by which programs distinguish this refusal from others.
    pub const CODE: &'static str = "draining";

    pub(super) fn new(retry_after: Duration) -> Self {
        Self { retry_after_ms: u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX) }
    }

    /// Returns how long to wait before trying again.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(self.retry_after_ms.into())
    }

    /// Returns what a queue consumer should do with the message.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::Requeue { after: self.retry_after() }
    }
}
