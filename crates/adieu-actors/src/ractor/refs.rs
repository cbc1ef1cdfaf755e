//! References to actors of ractor that account for each message.

use std::any::type_name;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ::ractor::{ActorRef, Message, MessagingErr};

use super::letter::Letter;
use super::node::RactorNode;
use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::spawn_error::SpawnError;
use crate::system::{Place, Spawn};
use crate::termination::{IntoTermination, Termination};

/// A reference to an actor that was spawned through a system. Dereferences to its [`ActorRef`].
pub struct Ref<M> {
    actor: ActorRef<M>,
    node: Arc<RactorNode>,
}

// === impl Ref ===

impl<M> Ref<M> {
    pub(super) fn new(actor: ActorRef<M>, node: Arc<RactorNode>) -> Self {
        Self { actor, node }
    }
}

impl<M: Message> Ref<M> {
    /// Returns the path of the actor in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns ractor's own reference. See [Send through `Ref`](super#send-through-ref) for the
    /// difference.
    #[must_use]
    pub fn actor_ref(&self) -> &ActorRef<M> {
        self
    }

    /// Sends a message. A message that is refused is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, or if it is being drained and the sender is not.
    /// The error contains the message.
    pub fn send(&self, message: M) -> Result<(), MessagingErr<M>> {
        self.admit(message, type_name::<M>())
    }

    /// Sends a message if the actor admits messages from the code that runs here. Counts it as a dead
    /// letter otherwise.
    fn admit(&self, message: M, name: &'static str) -> Result<(), MessagingErr<M>> {
        let node = &*self.node;
        node.begin_send(); // Before admission is checked; see `Admission`.
        let sent = if node.record().admits() {
            self.actor.send_message(message)
        } else {
            Err(MessagingErr::SendErr(message))
        };
        sent.inspect_err(|_| node.send_refused(name))
    }

    /// Spawns an actor below this one, and resolves when it has started. An actor of ractor is linked
    /// to this one.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn), and if this actor has ended or was sent a
    /// stop message. During a drain only actors that are being drained can spawn.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        let mut place = Place::below(Arc::clone(&self.node) as _, name)?;
        place.link = Some(self.actor.get_cell());
        place.spawn(name, actor).await
    }

    /// Returns the termination of the actor, for a task of a shutdown that first sends it this
    /// message. The actor should stop when it receives the message. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn stopped_by(&self, message: M) -> Termination {
        let actor = self.clone();
        self.into_termination().with_stop(async move { drop(actor.send(message)) })
    }

    /// Returns the actor as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Waits until the actor has fully terminated, after its `post_stop`.
    pub async fn terminated(&self) -> Ended {
        self.node.terminated().await
    }
}

impl<M: Send + 'static> Ref<Letter<M>> {
    /// Sends a message in a letter, which is counted if it is lost. A message that is refused is a dead
    /// letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, or if it is being drained and the sender is not.
    /// The error contains the message.
    pub fn post(&self, message: M) -> Result<(), MessagingErr<M>> {
        let letter = Letter::new(message, Arc::clone(&self.node));
        self.admit(letter, type_name::<M>()).map_err(|error| error.map(Letter::open))
    }

    /// Returns the termination of the actor, for a task of a shutdown that first sends it this
    /// message in a letter. The actor should stop when it receives the message. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn stopped_by_letter(&self, message: M) -> Termination {
        let actor = self.clone();
        self.into_termination().with_stop(async move { drop(actor.post(message)) })
    }
}

impl<M> Clone for Ref<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), node: Arc::clone(&self.node) }
    }
}

impl<M> Deref for Ref<M> {
    type Target = ActorRef<M>;

    fn deref(&self) -> &ActorRef<M> {
        // A message through it cannot be seen when it is sent.
        self.node.record().note_work();
        &self.actor
    }
}

impl<M> fmt::Debug for Ref<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref").field(self.node.path()).finish()
    }
}

impl<M> IntoTermination for &Ref<M> {
    fn into_termination(self) -> Termination {
        Termination::of(self.node.clone())
    }
}
