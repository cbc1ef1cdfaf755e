//! The outcome of a call, as an adaptive limit counts it.

use std::time::Duration;

/// How a call in a bulkhead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// It was answered after this time.
    Answered(Duration),
    /// It timed out, or the backend refused it.
    Dropped,
}
