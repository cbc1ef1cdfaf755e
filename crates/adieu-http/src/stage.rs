//! The stages of a server, which its connections follow.

use std::sync::atomic::{AtomicU8, Ordering};

/// The stage of a server. A server only moves to later stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Connections are accepted and served.
    Serving,
    /// Connections are accepted and served. Responses ask clients to reconnect elsewhere.
    WindingDown,
    /// The listener is closed. Open connections are served.
    Unbound,
    /// Idle connections are closed. The others send the rest of their responses.
    Flushing,
    /// All connections are dropped.
    Dropping,
}

/// The current stage, read with every request. A watch channel would be a lock that all requests
/// share.
#[derive(Debug)]
pub(crate) struct CurrentStage(AtomicU8);

const ALL: [Stage; 5] =
    [Stage::Serving, Stage::WindingDown, Stage::Unbound, Stage::Flushing, Stage::Dropping];

impl CurrentStage {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Stage::Serving as u8))
    }

    #[inline]
    pub(crate) fn get(&self) -> Stage {
        ALL.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Stage::Dropping)
    }

    pub(crate) fn set(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Relaxed);
    }
}
