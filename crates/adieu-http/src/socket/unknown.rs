//! A platform that does not tell.

use super::Endpoints;

#[derive(Debug)]
pub(crate) struct SendQueues;

impl SendQueues {
    pub(crate) fn open() -> Self {
        Self
    }

    pub(crate) fn unacknowledged(&self, _: &Endpoints) -> Option<u64> {
        None
    }
}
