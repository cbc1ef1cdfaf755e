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
//! Messages that are sent with [`Ref::tell`] or [`Ref::ask`] are *tracked*: each is handled, or is a
//! dead letter, even if the actor is killed. During a drain, tracked messages are accepted only from
//! actors that are being drained, too.
//!
//! kameo's own references ([`Ref::actor_ref`], the context of a handler, a `Recipient`) work as well.
//! Their messages are *untracked*:
//!
//! - During a drain, untracked messages are accepted from every sender, until no actor has work, or
//!   three quarters of the time have passed.
//! - Untracked messages that a killed actor has not processed are passed to
//!   [`Actor::on_undelivered`], and are counted if that calls [`undelivered`]. Otherwise the report
//!   shows the number of dead letters as unknown.
//!
//! `Ref` has no `Context::forward`, `Context::pipe`, `enqueue`, `blocking_enqueue`, `Recipient` or
//! links of its own. Through [`Ref::actor_ref`] they are available, and untracked. A message from
//! `pipe` is not seen at all until it is handled: to answer later, spawn a task with the
//! [identity](crate::Identity) of the actor.
//!
//! Inside a handler, `Context::actor_ref` is kameo's own reference. An actor that needs its own `Ref`
//! has to be sent it in a message, after it was spawned. An actor that holds its own `Ref` does not
//! stop when all other references were dropped, only when it is drained.
//!
//! # When an actor ends
//!
//! If an actor stops, fails or is killed without being drained, its children are drained before its
//! stop hook runs, for at most five seconds. For that, an actor below which others were spawned
//! supervises a small actor of adieu. If the last reference to an actor is dropped, its children are
//! drained, too, but kameo does not wait for them.
//!
//! If a handler panics, [`Actor::on_panic`] decides whether the actor ends.
//!
//! If the handler of a message that was sent with [`Ref::tell`] returns an error, the actor ends, as
//! with kameo's own `tell`. However, [`Actor::on_panic`] gets the error as text, as for a panic.

mod child_stopper;
mod children;
mod life;
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
use child_stopper::ChildStopper;
use life::text;
use node::KameoNode;
pub use request::{Ask, Tell};

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::Record;
use crate::spawn_error::SpawnError;
use crate::system::{Place, Spawn};
use crate::termination::{IntoTermination, Termination};

/// The default capacity of a mailbox, as in kameo.
const MAILBOX: usize = 64;

/// An actor that has not started yet. Spawn it in a system, or below another actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<A: Actor> {
    args: A::Args,
    mailbox: Mailbox<A>,
}

type Mailbox<A> = (MailboxSender<A>, MailboxReceiver<A>);

/// A reference to an actor that was spawned through a system. Dereferences to its [`ActorRef`].
///
/// As with kameo, an actor stops when its last reference is dropped and it has processed its messages.
/// The system does not hold a reference.
pub struct Ref<A: Actor> {
    actor: ActorRef<A>,
    node: Arc<KameoNode<A>>,
}

/// Prepares an actor that will be started with these arguments.
pub fn actor<A: Actor>(args: A::Args) -> Unstarted<A> {
    Unstarted { args, mailbox: mailbox::bounded(MAILBOX) }
}

/// Counts untracked messages that an actor has not processed. Call it in [`Actor::on_undelivered`].
///
/// Tracked messages, which were sent through [`Ref`], are counted automatically.
///
/// Outside an actor that was spawned through a system it does nothing.
pub fn undelivered<A: Actor>(messages: &[BoxMessage<A>]) {
    Record::current(|record| {
        record.mark_undelivered_counted();
        record.count_unprocessed(None, None, messages.len() as u64);
    });
}

// === impl Unstarted ===

impl<A: Actor> Unstarted<A> {
    /// Sets the mailbox. The default is a mailbox for 64 messages.
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
        let record = Record::new(path.clone(), &place.system.state).within(place.around.clone());
        let node = Arc::new(KameoNode::new(record, actor.downgrade()));
        place.add(Arc::clone(&node) as Arc<dyn Node>)?;
        life::spawn(&node, prepared.run(self.args));
        let started = tokio::select! {
            biased;
            started = actor.wait_for_startup_with_result(|started| started.map_err(text)) => started,
            ended = node.terminated() => match ended {
                Ended::Killed => {
                    return Err(place.system.state.noted(SpawnError::Killed { path }));
                }
                // It has started, and has stopped already.
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
    /// Returns the path of the actor in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns kameo's own reference. See [Send through `Ref`](self#send-through-ref) for the
    /// difference.
    #[must_use]
    pub fn actor_ref(&self) -> &ActorRef<A> {
        // A message through it cannot be seen when it is sent.
        self.node.record().note_work();
        &self.actor
    }

    /// Returns whether the calling code runs inside this actor.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.node.is_current()
    }

    /// Sends a message when the result is awaited. Waits while the mailbox is full. A message that is
    /// refused is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, or if it is being drained and the sender is not.
    /// The error contains the message.
    pub fn tell<M>(&self, message: M) -> Tell<'_, A, M>
    where
        A: Message<M>,
        M: Send + 'static,
    {
        Tell::new(self, message)
    }

    /// Sends a message and waits for the reply, when the result is awaited. A message that is refused
    /// is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, if it is being drained and the sender is not, if
    /// it ends without replying, or if its handler fails.
    pub fn ask<M>(&self, message: M) -> Ask<'_, A, M>
    where
        A: Message<M>,
        M: Send + 'static,
    {
        Ask::new(self, message)
    }

    /// Spawns an actor below this one, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn), and if this actor has ended or was sent a
    /// stop message. During a drain only actors that are being drained can spawn.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        let place = Place::below(Arc::clone(&self.node) as _, name)?;
        ChildStopper::ensure(&self.node, &self.actor).await;
        place.spawn(name, actor).await
    }

    /// Returns the termination of the actor, for a task of a shutdown that first sends it this
    /// message. The actor should stop when it receives the message. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn stopped_by<M>(&self, message: M) -> Termination
    where
        A: Message<M>,
        M: Send + 'static,
    {
        let actor = self.clone();
        self.into_termination().with_stop(async move { drop(actor.tell(message).await) })
    }

    /// Returns the actor as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Waits until the actor has fully terminated, after its stop hook.
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
        self.actor_ref()
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
