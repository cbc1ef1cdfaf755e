//! The errors of stores.

use std::sync::Arc;
use std::time::Duration;

use super::SessionId;

/// An error of a client or a server, of whatever kind.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request to a store failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, or did not answer. Trying again may help. A commit that
    /// fails with this error was not applied.
    #[error("{store} failed to {verb}")]
    Unavailable {
        /// The store's name.
        store: &'static str,
        /// The request; completes "failed to …".
        verb: &'static str,
        /// The cause.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The commit was sent, and its answer was lost: it may have been applied. Read the records
    /// before trying again.
    #[error("{store} did not answer a commit, which may have been applied")]
    Unknown {
        /// The store's name.
        store: &'static str,
        /// Why there is no answer.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The store refuses, and would refuse the same request again: wrong credentials, no permission,
    /// damaged data.
    #[error("{store} refused to {verb}")]
    Refused {
        /// The store's name.
        store: &'static str,
        /// The request; completes "failed to …".
        verb: &'static str,
        /// The cause.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The session of a new record has ended.
    #[error("{store} failed to commit: session {} has ended", session.get())]
    NoSession {
        /// The store's name.
        store: &'static str,
        /// The session.
        session: SessionId,
    },
    /// The time to live is shorter than the store can measure.
    #[error("{store} cannot open a session of {ttl:?}: the shortest time to live is {shortest:?}")]
    TtlTooShort {
        /// The store's name.
        store: &'static str,
        /// The time to live that was requested.
        ttl: Duration,
        /// The shortest that is possible.
        shortest: Duration,
    },
}

// === impl StoreError ===

impl StoreError {
    /// Returns a temporary error. `verb` completes "failed to …".
    pub fn unavailable(
        store: &'static str,
        verb: &'static str,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::Unavailable { store, verb, source: Arc::from(source.into()) }
    }

    /// Returns the error of a commit that may have been applied.
    pub fn unknown(store: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Unknown { store, source: Arc::from(source.into()) }
    }

    /// Returns the error of a commit that was sent: if it is not definite, the commit may have been
    /// applied.
    pub(crate) fn or_unknown(self) -> Self {
        match self {
            Self::Unavailable { store, source, .. } => Self::Unknown { store, source },
            Self::Unknown { .. }
            | Self::Refused { .. }
            | Self::NoSession { .. }
            | Self::TtlTooShort { .. } => self,
        }
    }

    /// Returns a permanent error. `verb` completes "refused to …".
    pub fn refused(store: &'static str, verb: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Refused { store, verb, source: Arc::from(source.into()) }
    }

    /// Returns whether trying again may help; after [`StoreError::Unknown`], once the records have
    /// been read.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Unknown { .. } => true,
            Self::Refused { .. } | Self::NoSession { .. } | Self::TtlTooShort { .. } => false,
        }
    }
}
