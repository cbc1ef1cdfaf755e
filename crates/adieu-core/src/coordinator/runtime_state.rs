//! Checks whether a runtime polls its tasks, for a thread that is about to block.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tokio::runtime::Handle;

/// How long a runtime has to poll one task.
const PATIENCE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuntimeState {
    Polled,
    /// No thread polls its tasks: the calling thread would have to, or its threads are blocked.
    Stalled,
    /// It has been dropped.
    Dropped,
}

/// Spawns a task and waits until it is polled or dropped, because tokio has no method for this.
pub(super) fn runtime_state(runtime: &Handle) -> RuntimeState {
    let (polled, seen) = channel();
    drop(runtime.spawn(async move {
        let _ = polled.send(());
    }));
    match seen.recv_timeout(PATIENCE) {
        Ok(()) => RuntimeState::Polled,
        Err(RecvTimeoutError::Timeout) => RuntimeState::Stalled,
        Err(RecvTimeoutError::Disconnected) => RuntimeState::Dropped,
    }
}
