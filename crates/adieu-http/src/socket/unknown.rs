//! A platform that does not tell.

use super::Endpoints;

#[derive(Debug)]
pub(crate) struct SendQueues;

impl SendQueues {
    pub(crate) fn open() -> Self {
        Self
    }

    /// Nothing is missing that could be there.
    pub(crate) fn is_forbidden(&self) -> bool {
        false
    }

    pub(crate) fn unacknowledged(&self, _: &Endpoints) -> Option<u64> {
        None
    }
}
