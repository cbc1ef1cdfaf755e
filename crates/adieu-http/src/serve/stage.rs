//! How far a server is, as its connections see it.

use std::sync::atomic::{AtomicU8, Ordering};

/// How far a server is. It only ever goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// As ever.
    Serving,
    /// Still serving; clients are sent away as they come.
    WindingDown,
    /// The listener is closed. What is connected is answered.
    Closing,
    /// Whoever has nothing to say any more is gone.
    Parting,
    /// Everybody is.
    Dropping,
}

/// The stage, to be looked at with each request: a watch channel would be a lock on all of them.
#[derive(Debug)]
pub(crate) struct Now(AtomicU8);

const ALL: [Stage; 5] =
    [Stage::Serving, Stage::WindingDown, Stage::Closing, Stage::Parting, Stage::Dropping];

impl Now {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Stage::Serving as u8))
    }

    #[inline]
    pub(crate) fn get(&self) -> Stage {
        ALL.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Stage::Dropping)
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Relaxed);
    }
}
