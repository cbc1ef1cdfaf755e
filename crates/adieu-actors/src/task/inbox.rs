//! The receiving side of a task's mailbox.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::node::TaskNode;
use crate::node::Node;

/// Receives the messages of a task.
pub struct Inbox<M> {
    receiver: Option<mpsc::Receiver<M>>,
    /// Gets the receiver when this is dropped.
    slot: Slot<M>,
    node: Arc<TaskNode>,
}

/// Holds the receiver after the task has dropped its inbox.
pub(super) type Slot<M> = Arc<Mutex<Option<mpsc::Receiver<M>>>>;

// === impl Inbox ===

impl<M> Inbox<M> {
    pub(super) fn new(receiver: mpsc::Receiver<M>, node: Arc<TaskNode>) -> (Self, Slot<M>) {
        let slot = Slot::default();
        (Self { receiver: Some(receiver), slot: Arc::clone(&slot), node }, slot)
    }

    /// Returns the next message, or `None` when the task should return: it was asked to stop and has
    /// processed all accepted messages, or every [`Mailbox`](super::Mailbox) was dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<M> {
        self.node.handler_returned();
        let receiver = self.receiver.as_mut()?;
        let message = tokio::select! {
            biased;
            () = self.node.stop_token().cancelled(), if !receiver.is_closed() => {
                receiver.close();
                receiver.recv().await
            }
            message = receiver.recv() => message,
        };
        self.node.set_handling(message.is_some());
        message
    }

    /// Returns a token that is cancelled when the task should stop, for tasks that also wait for
    /// other events.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.node.stop_token().clone()
    }
}

impl<M> fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inbox").field(self.node.path()).finish()
    }
}

/// Hands the remaining messages to the code that runs the task, which counts them.
impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.receiver.take();
    }
}
