//! How a probe of a breaker ended.

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded,
    Failed,
    /// The outcome shows nothing about the backend.
    Neutral,
}
