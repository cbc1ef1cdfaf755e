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
//! # Ok(())
//! # }
//! ```
//!
//! # What a message to an actor that is being drained finds
//!
//! An actor with others beneath it works off what has come, then takes messages until those have
//! ended, so that they can tell it how they fared. Only then is it closed, and its stop hook runs.
//!
//! # Dead letters
//!
//! What a killed actor leaves behind kameo gives to [`Actor::on_undelivered`]. Hand it on with
//! [`undelivered`], and it is counted:
//!
//! ```
//! # use kameo::{Actor, error::{ActorStopReason, Infallible}, actor::ActorRef, message::BoxMessage};
//! # struct Orders;
//! impl Actor for Orders {
//! #   type Args = Self; type Error = Infallible;
//! #   async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> { Ok(args) }
//!     async fn on_undelivered(
//!         &mut self,
//!         _: ActorStopReason,
//!         messages: Vec<BoxMessage<Self>>,
//!     ) -> Result<(), Infallible> {
//!         adieu_actors::kameo::undelivered(&messages);
//!         Ok(())
//!     }
//! }
//! ```

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, PreparedActor, WeakActorRef};
use ::kameo::error::{ActorStopReason, HookError, PanicError, SendError};
use ::kameo::mailbox::{self, MailboxReceiver, MailboxSender, Signal};
use ::kameo::message::{BoxMessage, Message};
use futures_util::future::{BoxFuture, FutureExt};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::{Last, Record, Recorded, within};
use crate::system::{Place, Spawn, SpawnError};
use crate::termination::{IntoTermination, Termination};

/// How many messages a mailbox holds if nothing else is said, as in kameo.
const MAILBOX: usize = 64;

/// An actor that has not started yet. Spawn it in a system, or beneath another actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<A: Actor> {
    args: A::Args,
    mailbox: Mailbox<A>,
}

type Mailbox<A> = (MailboxSender<A>, MailboxReceiver<A>);

/// An actor that was spawned through a system. Does all that an [`ActorRef`] does.
///
/// As with kameo, an actor that nobody holds a reference to any more stops by itself; the system
/// does not hold one.
pub struct Ref<A: Actor> {
    actor: ActorRef<A>,
    node: Arc<KameoNode<A>>,
}

/// An actor as a node.
struct KameoNode<A: Actor> {
    record: Record,
    actor: WeakActorRef<A>,
    /// To end what kameo cannot: an actor that is just starting, or that is stuck in a stop hook.
    task: Mutex<Option<AbortHandle>>,
    was_killed: AtomicBool,
    /// How often it had something to do; and how often that was only our own message.
    polls: AtomicU64,
    looks: AtomicU64,
}

/// An actor that will be started like this.
pub fn actor<A: Actor>(args: A::Args) -> Unstarted<A> {
    Unstarted { args, mailbox: mailbox::bounded(MAILBOX) }
}

/// Counts messages that an actor ended without. To be called in [`Actor::on_undelivered`].
///
/// Elsewhere, or in an actor that was not spawned through a system, it does nothing.
pub fn undelivered<A: Actor>(messages: &[BoxMessage<A>]) {
    Record::current(|record| record.left_behind(None, None, messages.len() as u64));
}

// === impl Unstarted ===

impl<A: Actor> Unstarted<A> {
    /// Another mailbox than one for 64 messages.
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
        let node = Arc::new(KameoNode {
            record: Record::new(path.clone(), &place.system.inner),
            actor: actor.downgrade(),
            task: Mutex::new(None),
            was_killed: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        });
        place.system.inner.join(Arc::clone(&node) as Arc<dyn Node>)?;
        let life = Life { run: prepared.run(self.args), last: Last::new(Arc::clone(&node)) };
        #[expect(clippy::disallowed_methods, reason = "an actor is a task; its system joins it")]
        let task = tokio::spawn(life);
        node.started(task.abort_handle());
        let started = tokio::select! {
            biased;
            started = actor.wait_for_startup_with_result(|started| started.map_err(text)) => started,
            ended = node.record.ending.wait() => match ended {
                Ended::Killed => return Err(SpawnError::Killed { path }),
                // It has started, and stopped already.
                Ended::Stopped | Ended::HookFailed { .. } => Ok(()),
                Ended::Failed { error } => Err(error),
            }
        };
        match started {
            Ok(()) => Ok(Ref { actor, node }),
            Err(error) => {
                node.record.ending.wait().await;
                Err(SpawnError::Start { path, error })
            }
        }
    }
}

// === impl Ref ===

impl<A: Actor> Ref<A> {
    /// Where it is in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// The actor as kameo knows it.
    #[must_use]
    pub fn actor_ref(&self) -> &ActorRef<A> {
        &self.actor
    }

    /// Sends a message, waiting for room in the mailbox. One that comes too late is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub async fn tell<M>(&self, message: M) -> Result<(), SendError<M>>
    where
        A: Message<M>,
        M: Send + 'static,
    {
        let sent = self.actor.tell(message).send().await;
        sent.inspect_err(|_| self.node.record.came_too_late(std::any::type_name::<M>()))
    }

    /// Spawns another actor beneath this one, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn).
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        match self.node.record.place() {
            Some(place) => place.spawn(name, actor).await,
            None => Err(SpawnError::Gone { path: self.path().clone() }),
        }
    }

    /// Its end, for a task of a shutdown that tells it this message first. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn told<M>(&self, message: M) -> Termination
    where
        A: Message<M>,
        M: Send + 'static,
    {
        let actor = self.clone();
        self.into_termination().telling(async move { drop(actor.tell(message).await) })
    }

    /// The actor as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Resolves when it has fully terminated, after its stop hook.
    pub async fn terminated(&self) -> Ended {
        self.node.record.ending.wait().await
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

// === impl KameoNode ===

impl<A: Actor> KameoNode<A> {
    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self, task: AbortHandle) {
        *self.task() = Some(task).filter(|task| !task.is_finished());
        if self.was_killed.load(Ordering::SeqCst) {
            self.kill(); // It came when there was no task to be ended yet.
        }
    }

    /// Resolves when all that had come before has been worked off.
    async fn look(&self) {
        // One that cannot be reached any more is stopping.
        let Some(actor) = self.actor.upgrade() else { return };
        self.looks.fetch_add(1, Ordering::Relaxed);
        let (reached, look) = oneshot::channel::<()>();
        let signal = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |_, _| {
                drop(reached);
                Box::pin(std::future::ready(()))
            }),
        };
        let sent = actor.mailbox_sender().send(signal).await;
        drop(actor);
        if sent.is_ok() {
            let _ = look.await; // Nothing is ever sent: it is dropped when its turn comes.
        }
    }
}

impl<A: Actor> Recorded for KameoNode<A> {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl<A: Actor> Node for KameoNode<A> {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.look())
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(actor) = self.actor.upgrade() {
                let _ = actor.stop_gracefully().await; // Or it has stopped already.
            }
        })
    }

    fn try_drain(&self) -> bool {
        let pill = |actor: ActorRef<A>| unconstrained(actor.stop_gracefully()).now_or_never();
        self.actor.upgrade().is_none_or(|actor| pill(actor).is_some())
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn kill(&self) {
        let is_second = self.was_killed.swap(true, Ordering::SeqCst);
        self.actor.kill();
        // One that is still starting, or in its stop hook, does not hear that.
        if let Some(task) = self.task().as_ref()
            && is_second
        {
            // Nobody will be asked what was not delivered.
            if self.record.ending.get().is_none() {
                self.record.left_behind(None, None, self.queued().unwrap_or_default() as u64);
            }
            task.abort();
        }
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn queued(&self) -> Option<usize> {
        let Some(mailbox) = self.actor.mailbox_sender().upgrade() else { return Some(0) };
        Some(mailbox.max_capacity()? - mailbox.capacity()?)
    }

    fn dead_letters(&self) -> Option<u64> {
        Some(self.record.dead.load(Ordering::Relaxed))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.look().await;
            // An actor that has nothing to do is polled for our looks alone.
            let looks = self.looks.load(Ordering::Relaxed);
            self.polls.load(Ordering::Relaxed).wrapping_sub(looks)
        })
    }
}

impl<A: Actor> IntoTermination for &Ref<A> {
    fn into_termination(self) -> Termination {
        Termination::of(self.node())
    }
}

fn ended_of<A: Actor>(
    actor: &WeakActorRef<A>,
    ended: Result<ActorStopReason, PanicError>,
) -> Ended {
    match ended {
        Err(error) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::Killed) => Ended::Killed,
        Ok(ActorStopReason::Panicked(error)) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::LinkDied { id, reason }) => {
            Ended::Failed { error: format!("{id}, to which it was linked, ended: {reason}").into() }
        }
        Ok(ActorStopReason::Normal | ActorStopReason::SupervisorRestart) => {
            let hook = actor.with_shutdown_result(|ended| ended.map(drop).map_err(text));
            match hook {
                Some(Err(error)) => Ended::HookFailed { error },
                Some(Ok(())) | None => Ended::Stopped,
            }
        }
    }
}

fn text<E: fmt::Debug>(error: HookError<&E>) -> Arc<str> {
    match error {
        HookError::Panicked(panic) => panic.to_string().into(),
        HookError::Error(error) => format!("{error:?}").into(),
    }
}

pin_project! {
    /// The life of an actor, from its start to after its stop hook.
    struct Life<A: Actor, F> {
        #[pin]
        run: F,
        // Last: it says that all else is gone.
        last: Last<KameoNode<A>>,
    }
}

impl<A, F> Future for Life<A, F>
where
    A: Actor,
    F: Future<Output = Result<(A, ActorStopReason), PanicError>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let node = this.last.node();
        let polls = &node.polls;
        // Nobody else writes to it.
        polls.store(polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let ended = ready!(within(node, || this.run.poll(cx)));
        let ended = ended_of(&node.actor, ended.map(|(_, reason)| reason));
        node.task().take(); // It would keep the task's memory for as long as the node is held.
        node.record.ending.say(ended);
        Poll::Ready(())
    }
}
