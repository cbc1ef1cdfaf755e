//! Checks whether a runtime polls its tasks, for a thread that is about to block.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tokio::runtime::Handle;

/// How long a runtime has to poll one task.
const PATIENCE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Runs,
    /// No thread polls its tasks: the calling thread would have to, or its threads are blocked.
    StandsStill,
    /// It has been dropped.
    Gone,
}

/// Spawns a task and waits until it is polled or dropped, because tokio has no method for this.
pub(super) fn probe(runtime: &Handle) -> Home {
    let (polled, seen) = channel();
    drop(runtime.spawn(async move {
        let _ = polled.send(());
    }));
    match seen.recv_timeout(PATIENCE) {
        Ok(()) => Home::Runs,
        Err(RecvTimeoutError::Timeout) => Home::StandsStill,
        Err(RecvTimeoutError::Disconnected) => Home::Gone,
    }
}
