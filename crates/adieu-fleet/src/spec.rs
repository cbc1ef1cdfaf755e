//! How a lock is to be: its name, how long it lasts, what it needs.

use std::time::Duration;

use crate::names::NameError;

/// How a lock is to be. It becomes a [`Lock`](crate::Lock) when it is joined with a backend, and is
/// judged then.
///
/// A plain string will do where only the key matters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a spec does nothing until it is made a lock"]
pub struct LockSpec {
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    pub(crate) margin: Option<Duration>,
    pub(crate) retry: Duration,
    pub(crate) needs_fence: bool,
}

/// Why a spec was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The key is none.
    #[error("failed to make a lock")]
    Name(#[from] NameError),
    /// It would end before it can be renewed.
    #[error(
        "failed to make lock {key}: its time to live is {ttl:?}, and must be from 100ms to a day"
    )]
    Ttl {
        /// The lock in question.
        key: String,
        /// Its time to live.
        ttl: Duration,
    },
    /// Either nothing would be left in which to renew it, or a lease would be given up in the same
    /// instant in which another replica can have the lock.
    #[error(
        "failed to make lock {key}: its margin is {margin:?}, and must be from 10ms to {:?}, half of \
         its time to live",
        *.ttl / 2
    )]
    Margin {
        /// The lock in question.
        key: String,
        /// What is taken off at the end.
        margin: Duration,
        /// Its time to live.
        ttl: Duration,
    },
    /// It would ask without a pause.
    #[error(
        "failed to make lock {key}: it would try again every {retry:?}; a millisecond is the least"
    )]
    Retry {
        /// The lock in question.
        key: String,
        /// How often it would ask.
        retry: Duration,
    },
    /// The backend has no fences, and the spec needs them.
    #[error(
        "failed to make lock {key}: it needs a fence, and {backend} has none; use another backend"
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
    /// A lock of this key that lasts 30 s if it is not renewed.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            ttl: Duration::from_secs(30),
            margin: None,
            retry: Duration::from_millis(100),
            needs_fence: false,
        }
    }

    /// How long the lock lasts if it is not renewed: so long do others wait when a holder dies.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the end of its time to live a lease that could not be renewed is given up;
    /// a fifth by default.
    ///
    /// It must cover how much slower our clock may run than the server's, and how late we may be
    /// scheduled. 10 ms is the least, half of the time to live the most.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// How often who waits for the lock looks; 100 ms by default. Each pause is random by half.
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
