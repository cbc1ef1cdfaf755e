//! A plain tokio task with a mailbox, in an [`ActorSystem`](crate::ActorSystem).
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, task::{Inbox, task}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = ActorSystem::new("shop");
//! let mail = system
//!     .spawn("mail", task(64, async |mut inbox: Inbox<String>| {
//!         while let Some(letter) = inbox.recv().await {
//!             letter.process(async |letter| println!("sending {letter}")).await;
//!         }
//!         // All accepted messages have been processed. Code here is the stop hook.
//!     }))
//!     .await?;
//! mail.send("hello".to_owned()).await?;
//! let report = system.shutdown(Timeouts::STATELESS).await?;
//! assert!(report.is_clean());
//! assert_eq!(report.drained(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! A message counts as processed when its [`Delivery`] is done: when [`Delivery::process`] has returned,
//! or [`Delivery::done`] was called. If a delivery is dropped before, its message is a dead letter. A
//! task that is killed is dropped at the `await` where it waits.
//!
//! A task ends when its body has returned, and its [`Inbox`] and all deliveries have been dropped. If
//! the body moves the inbox or a delivery into another task, that task processes the messages.

mod inbox;
mod life;
mod mailbox;
mod node;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use adieu_core::TaskResult;
pub use inbox::Inbox;
pub use mailbox::{Mailbox, SendError};
use node::TaskNode;
use tokio::sync::mpsc;

#[cfg(doc)]
use crate::delivery::Delivery;
use crate::node::Node;
use crate::path::NodePath;
use crate::record::Record;
use crate::spawn_error::SpawnError;
use crate::system::{Place, Spawn};

/// A task that has not started yet. Spawn it in a system, or below an actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<M, F> {
    capacity: usize,
    body: F,
    message: PhantomData<fn(M)>,
}

/// Prepares a task whose mailbox holds this many messages. Senders wait while it is full.
pub fn task<M, F, Fut, R>(capacity: usize, body: F) -> Unstarted<M, F>
where
    M: Send + 'static,
    F: FnOnce(Inbox<M>) -> Fut + Send,
    Fut: Future<Output = R> + Send + 'static,
    R: TaskResult,
{
    Unstarted { capacity: capacity.max(1), body, message: PhantomData }
}

// === impl Unstarted ===

impl<M, F> fmt::Debug for Unstarted<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstarted").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<M, F, Fut, R> Spawn for Unstarted<M, F>
where
    M: Send + 'static,
    F: FnOnce(Inbox<M>) -> Fut + Send,
    Fut: Future<Output = R> + Send + 'static,
    R: TaskResult,
{
    type Ref = Mailbox<M>;

    async fn spawn_at(self, place: Place, path: NodePath) -> Result<Mailbox<M>, SpawnError> {
        let (sender, receiver) = mpsc::channel(self.capacity);
        let record = Record::new(path, &place.system.state).within(place.around.clone());
        let node = Arc::new(TaskNode::new(record, type_name::<M>()));
        place.add(Arc::clone(&node) as Arc<dyn Node>)?;
        let (inbox, slot) = Inbox::new(receiver, Arc::clone(&node));
        life::spawn(Arc::clone(&node), slot, (self.body)(inbox));
        Ok(Mailbox::new(sender, node))
    }
}
