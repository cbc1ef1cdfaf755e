//! Actors of kameo in an [`ActorSystem`](crate::ActorSystem).
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, kameo::actor};
//! use kameo::{Actor, message::{Context, Message}};
//!
//! #[derive(Actor, Default)]
//! struct Orders(u64);
//!
//! struct Order;
//!
//! impl Message<Order> for Orders {
//!     type Reply = ();
//!     async fn handle(&mut self, _: Order, _: &mut Context<Self, ()>) {
//!         self.0 += 1;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = ActorSystem::new("shop");
//! let orders = system.spawn("orders", actor::<Orders>(Orders::default())).await?;
//! orders.tell(Order).await?;
//! let report = system.shutdown(Timeouts::STATELESS).await?;
//! assert!(report.is_clean());
//! assert_eq!(report.drained(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Send through [`Ref`]
//!
//! A message that is sent with [`Ref::tell`] or [`Ref::ask`] is accounted for: it is handled, or it
//! is a dead letter, also if the actor is killed. During a drain such messages are accepted from
//! actors that are being drained, too, and refused to everything else.
//!
//! kameo's own references ([`Ref::actor_ref`], the context of a handler, a `Recipient`) work as
//! well. kameo decides what becomes of their messages:
//!
//! - While actors are being drained, everything can send through them, until no actor has anything
//!   to do, or three quarters of the time have passed.
//! - Messages that a killed actor leaves behind go to [`Actor::on_undelivered`], and are counted if
//!   that calls [`undelivered`]. Otherwise the report says that the number of dead letters is
//!   unknown.
//!
//! A told message whose handler returns an error ends the actor as with kameo's own `tell`; but
//! [`Actor::on_panic`] gets the error as text, as of a panic.

mod node;
mod parcel;
mod request;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, PreparedActor};
use ::kameo::mailbox::{self, MailboxReceiver, MailboxSender};
use ::kameo::message::{BoxMessage, Message};
use node::{KameoNode, text};
pub use request::{Ask, Tell};

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::Record;
use crate::spawn::{Place, Spawn, SpawnError};
use crate::termination::{IntoTermination, Termination};

/// How many messages a mailbox holds by default, as in kameo.
const MAILBOX: usize = 64;

/// An actor that has not started yet. Spawn it in a system, or below another actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<A: Actor> {
    args: A::Args,
    mailbox: Mailbox<A>,
}

type Mailbox<A> = (MailboxSender<A>, MailboxReceiver<A>);

/// An actor that was spawned through a system. Does all that an [`ActorRef`] does.
///
/// As with kameo, an actor to which no reference is left stops when it has processed its messages;
/// the system does not hold a reference.
pub struct Ref<A: Actor> {
    actor: ActorRef<A>,
    node: Arc<KameoNode<A>>,
}

/// Prepares an actor that will be started with these arguments.
pub fn actor<A: Actor>(args: A::Args) -> Unstarted<A> {
    Unstarted { args, mailbox: mailbox::bounded(MAILBOX) }
}

/// Counts messages that were sent through kameo's own references, and that an actor ended without.
/// To be called in [`Actor::on_undelivered`]. Messages that were sent through [`Ref`] need no such
/// call.
///
/// Elsewhere, or in an actor that was not spawned through a system, it does nothing.
pub fn undelivered<A: Actor>(messages: &[BoxMessage<A>]) {
    Record::current(|record| {
        record.has_counted_undelivered();
        record.left_behind(None, None, messages.len() as u64);
    });
}

// === impl Unstarted ===

impl<A: Actor> Unstarted<A> {
    /// Sets another mailbox than one for 64 messages.
    pub fn mailbox(mut self, mailbox: (MailboxSender<A>, MailboxReceiver<A>)) -> Self {
        self.mailbox = mailbox;
        self
    }
}

impl<A: Actor> fmt::Debug for Unstarted<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstarted").field("actor", &A::name()).finish_non_exhaustive()
    }
}

impl<A: Actor> Spawn for Unstarted<A> {
    type Ref = Ref<A>;

    async fn spawn_at(self, place: Place, path: NodePath) -> Result<Ref<A>, SpawnError> {
        let prepared = PreparedActor::new(self.mailbox);
        let actor = prepared.actor_ref().clone();
        let record = Record::new(path.clone(), &place.system.inner);
        let node = Arc::new(KameoNode::new(record, actor.downgrade()));
        place.system.inner.join(Arc::clone(&node) as Arc<dyn Node>)?;
        node::run(&node, prepared.run(self.args));
        let started = tokio::select! {
            biased;
            started = actor.wait_for_startup_with_result(|started| started.map_err(text)) => started,
            ended = node.terminated() => match ended {
                Ended::Killed => return Err(SpawnError::Killed { path }),
                // It has started, and stopped already.
                Ended::Stopped | Ended::HookFailed { .. } => Ok(()),
                Ended::Failed { error } => Err(error),
            }
        };
        match started {
            Ok(()) => {
                node.mark_started();
                Ok(Ref { actor, node })
            }
            Err(error) => {
                node.terminated().await;
                Err(SpawnError::Start { path, error })
            }
        }
    }
}

// === impl Ref ===

impl<A: Actor> Ref<A> {
    /// Returns where it is in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns the actor as kameo knows it. See [Send through `Ref`](self#send-through-ref) for the
    /// difference.
    #[must_use]
    pub fn actor_ref(&self) -> &ActorRef<A> {
        &self.actor
    }

    /// Returns whether the code that runs here is this actor's.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.node.is_current()
    }

    /// Sends a message when it is awaited, waiting for room in the mailbox. A message that is
    /// refused is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub fn tell<M>(&self, message: M) -> Tell<'_, A, M>
    where
        A: Message<M>,
        M: Send + 'static,
    {
        Tell::new(self, message)
    }

    /// Sends a message when it is awaited, and waits for the reply. A message that is refused is a
    /// dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to, or ends without having replied, or its handler
    /// fails.
    pub fn ask<M>(&self, message: M) -> Ask<'_, A, M>
    where
        A: Message<M>,
        M: Send + 'static,
    {
        Ask::new(self, message)
    }

    /// Spawns another actor below this one, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn); also if this actor has ended or been
    /// told to stop. During a drain only actors that are being drained can spawn.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        self.node.record().place(name)?.spawn(name, actor).await
    }

    /// Returns its end, for a task of a shutdown that tells it this message first. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn told<M>(&self, message: M) -> Termination
    where
        A: Message<M>,
        M: Send + 'static,
    {
        let actor = self.clone();
        self.into_termination().telling(async move { drop(actor.tell(message).await) })
    }

    /// Returns the actor as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Resolves when it has fully terminated, after its stop hook.
    pub async fn terminated(&self) -> Ended {
        self.node.terminated().await
    }
}

impl<A: Actor> Clone for Ref<A> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), node: Arc::clone(&self.node) }
    }
}

impl<A: Actor> Deref for Ref<A> {
    type Target = ActorRef<A>;

    fn deref(&self) -> &ActorRef<A> {
        &self.actor
    }
}

impl<A: Actor> fmt::Debug for Ref<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref").field(self.path()).finish()
    }
}

impl<A: Actor> IntoTermination for &Ref<A> {
    fn into_termination(self) -> Termination {
        Termination::of(self.node())
    }
}
