//! The settings of a lock.

use std::time::Duration;

use crate::names::NameError;

/// The settings of a lock. [`Lock::new`](crate::Lock::new) combines them with a backend, and checks
/// them.
///
/// A string can be used instead where only the key matters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a spec does nothing until a lock is created from it"]
pub struct LockSpec {
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    pub(crate) margin: Option<Duration>,
    pub(crate) retry: Duration,
    pub(crate) needs_fence: bool,
}

/// Why a lock could not be created from a spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The key is not a valid name.
    #[error("failed to create a lock")]
    Name(#[from] NameError),
    /// The time to live is too short to be renewed in time, or too long.
    #[error("failed to create lock {key}: time to live {ttl:?} is not between 100ms and 1 day")]
    Ttl {
        /// The lock in question.
        key: String,
        /// The time to live.
        ttl: Duration,
    },
    /// The margin is so long that no time is left to renew, or so short that a lease would be given
    /// up at the instant at which another replica can acquire the lock.
    #[error(
        "failed to create lock {key}: margin {margin:?} is not between 10ms and {:?} (half of the \
         time to live)",
        *.ttl / 2
    )]
    Margin {
        /// The lock in question.
        key: String,
        /// The margin.
        margin: Duration,
        /// The time to live.
        ttl: Duration,
    },
    /// The retry interval is so short that waiting would be a busy loop.
    #[error("failed to create lock {key}: retry interval {retry:?} is shorter than 1ms")]
    Retry {
        /// The lock in question.
        key: String,
        /// The retry interval.
        retry: Duration,
    },
    /// The backend has no fences, and the spec needs them.
    #[error(
        "failed to create lock {key}: it needs a fence, and backend {backend} has none; use another \
         backend"
    )]
    NoFence {
        /// The lock in question.
        key: String,
        /// The backend in question.
        backend: &'static str,
    },
}

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const LEAST_MARGIN: Duration = Duration::from_millis(10);

// === impl LockSpec ===

impl LockSpec {
    /// Creates the settings of the lock with this key. Its time to live is 30 s.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            ttl: Duration::from_secs(30),
            margin: None,
            retry: Duration::from_millis(100),
            needs_fence: false,
        }
    }

    /// Sets how long the lock lasts if it is not renewed; 30 s by default. Other replicas wait that
    /// long when a holder dies.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long before the end of its time to live a lease that could not be renewed is given
    /// up; a fifth of the time to live by default.
    ///
    /// The margin must cover how much slower the clock of this process may run than the server's,
    /// and how late the process may be scheduled. It is at least 10 ms, and at most half of the time
    /// to live.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the interval between attempts while waiting for the lock; 100 ms by default. Each pause
    /// is randomised by half of it.
    pub fn retry(mut self, every: Duration) -> Self {
        self.retry = every;
        self
    }

    /// Refuses backends that have no fences.
    pub fn needs_fence(mut self) -> Self {
        self.needs_fence = true;
        self
    }

    pub(crate) fn margin_or_default(&self) -> Duration {
        self.margin.unwrap_or(self.ttl / 5)
    }

    pub(crate) fn check(&self, backend: &'static str, has_fences: bool) -> Result<(), SpecError> {
        let (key, ttl, margin) = (self.key.clone(), self.ttl, self.margin_or_default());
        if !(SHORTEST..=LONGEST).contains(&ttl) {
            return Err(SpecError::Ttl { key, ttl });
        }
        if !(LEAST_MARGIN..=ttl / 2).contains(&margin) {
            return Err(SpecError::Margin { key, margin, ttl });
        }
        if self.retry < Duration::from_millis(1) {
            return Err(SpecError::Retry { key, retry: self.retry });
        }
        if self.needs_fence && !has_fences {
            return Err(SpecError::NoFence { key, backend });
        }
        Ok(())
    }
}

impl From<&str> for LockSpec {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for LockSpec {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}
