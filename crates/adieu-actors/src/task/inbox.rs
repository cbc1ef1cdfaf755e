//! The receiving side of a task's mailbox.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::node::TaskNode;
use crate::delivery::Delivery;
use crate::node::Node;

/// Receives the messages of a task.
pub struct Inbox<M> {
    receiver: Option<mpsc::Receiver<M>>,
    /// Passes the receiver on when the inbox is dropped.
    slot: Option<oneshot::Sender<mpsc::Receiver<M>>>,
    node: Arc<TaskNode>,
}

/// Resolves to the receiver of the messages when the inbox is dropped.
pub(super) type Slot<M> = oneshot::Receiver<mpsc::Receiver<M>>;

// === impl Inbox ===

impl<M> Inbox<M> {
    pub(super) fn new(receiver: mpsc::Receiver<M>, node: Arc<TaskNode>) -> (Self, Slot<M>) {
        let (slot, dropped) = oneshot::channel();
        (Self { receiver: Some(receiver), slot: Some(slot), node }, dropped)
    }

    /// Returns the next message, or `None` when the task should return: it was stopped and has
    /// received all accepted messages, or every [`Mailbox`](super::Mailbox) was dropped.
    ///
    /// The message is a dead letter if its [`Delivery`] is dropped before it is done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<Delivery<M>> {
        let receiver = self.receiver.as_mut()?;
        let message = tokio::select! {
            biased;
            // The inbox may be in another task than the one that was killed.
            () = self.node.kill_token().cancelled() => None,
            () = self.node.stop_token().cancelled(), if !receiver.is_closed() => {
                receiver.close();
                receiver.recv().await
            }
            message = receiver.recv() => message,
        };
        let message = message?;
        self.node.begin_delivery();
        Some(Delivery::new(message, Arc::clone(&self.node) as _))
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
        if let Some((slot, receiver)) = self.slot.take().zip(self.receiver.take()) {
            let _ = slot.send(receiver); // Fails only if the runtime dropped the task.
        }
    }
}
