//! The sending side of a task's mailbox.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::node::TaskNode;
use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::refusals::REFUSED_BY_TASK;
use crate::spawn_error::SpawnError;
use crate::system::{Place, Spawn};
use crate::termination::{IntoTermination, Termination};

/// Sends messages to a task that was spawned through a system.
pub struct Mailbox<M> {
    sender: mpsc::Sender<M>,
    node: Arc<TaskNode>,
}

/// The error for a message that was refused. The message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{REFUSED_BY_TASK}")]
#[non_exhaustive]
pub struct SendError<M> {
    /// The message.
    pub message: M,
}

/// Counts a message while it is being sent.
struct Sending<'a>(&'a TaskNode);

// === impl Mailbox ===

impl<M> Mailbox<M> {
    pub(super) fn new(sender: mpsc::Sender<M>, node: Arc<TaskNode>) -> Self {
        Self { sender, node }
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Sends a message, and waits while the mailbox is full. A message that is refused is a dead
    /// letter.
    ///
    /// # Errors
    ///
    /// If the task has ended or is about to end, or if it is being drained and the sender is not. The
    /// error contains the message.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it resolves, the message was not sent.
    pub async fn send(&self, message: M) -> Result<(), SendError<M>> {
        let node = &*self.node;
        let sending = Sending::new(node); // Before admission is checked; see `Admission`.
        if node.record().admits()
            && let Ok(room) = self.sender.reserve().await
        {
            room.send(message);
            sending.keep();
            return Ok(());
        }
        node.record().count_refused(type_name::<M>());
        drop(sending); // After the message was counted; see `until_sent`.
        // A refusal may come at the first poll, and a loop of such calls would never yield.
        tokio::task::coop::consume_budget().await;
        Err(SendError { message })
    }

    /// Returns the path of the task in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns the task as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Waits until the task has returned, failed or been killed.
    pub async fn terminated(&self) -> Ended {
        self.node.terminated().await
    }

    /// Spawns an actor below this task, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn), and if this task has ended or was asked to
    /// stop.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        Place::below(Arc::clone(&self.node) as _, name)?.spawn(name, actor).await
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), node: Arc::clone(&self.node) }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(self.node.path()).finish()
    }
}

impl<M> IntoTermination for &Mailbox<M> {
    fn into_termination(self) -> Termination {
        Termination::of(Arc::clone(&self.node) as Arc<dyn Node>)
    }
}

// === impl Sending ===

impl<'a> Sending<'a> {
    fn new(node: &'a TaskNode) -> Self {
        node.begin_send();
        Self(node)
    }

    /// Counts the message until it has been processed.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.finish(1);
    }
}
