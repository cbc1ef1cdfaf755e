//! Actors of ractor in an [`ActorSystem`](crate::ActorSystem).
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, ractor::actor};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//!
//! struct Orders;
//! struct Order;
//!
//! impl Actor for Orders {
//!     type Msg = Order;
//!     type State = u64;
//!     type Arguments = ();
//!
//!     async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<u64, ActorProcessingErr> {
//!         Ok(0)
//!     }
//!
//!     async fn handle(
//!         &self,
//!         _: ActorRef<Order>,
//!         _: Order,
//!         orders: &mut u64,
//!     ) -> Result<(), ActorProcessingErr> {
//!         *orders += 1;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = ActorSystem::new("shop");
//! let orders = system.spawn("orders", actor(Orders, ())).await?;
//! orders.send(Order).map_err(|_| "it has stopped")?;
//! let report = system.shutdown(Timeouts::STATELESS).await?;
//! assert!(report.is_clean());
//! assert_eq!(report.drained(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Also an actor that stops by itself has those beneath it drained before its `post_stop` runs.
//!
//! # What ractor does not do
//!
//! A killed actor, and one whose handler panicked, does not run its `post_stop`. What it leaves
//! behind vanishes, and how much that was nobody knows, unless its messages come in a [`Letter`].
//!
//! ractor's features `async-trait` and `cluster` change its traits; this works without them.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use ::ractor::{
    Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime, Message, MessagingErr,
    SupervisionEvent,
};
use futures_util::future::{BoxFuture, Either, FutureExt, join_all};
use pin_project_lite::pin_project;
use tokio::sync::SetOnce;

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::{Last, Record, Recorded, within};
use crate::system::{Place, Spawn, SpawnError, Timeouts};
use crate::termination::{IntoTermination, Termination};

/// An actor that has not started yet. Spawn it in a system, or beneath another actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<A: Actor> {
    actor: A,
    args: A::Arguments,
}

/// An actor that was spawned through a system. Does all that an [`ActorRef`] does.
pub struct Ref<M> {
    actor: ActorRef<M>,
    node: Arc<RactorNode>,
}

/// A message that is missed when it is lost: if it is dropped unopened, it is a dead letter.
///
/// ractor drops what a killed actor leaves behind without a word. An actor with
/// `type Msg = Letter<Order>` knows how many it has to do, and how many it ended without. It is
/// written to with [`Ref::post`].
#[must_use = "a letter that is not opened is a dead letter"]
pub struct Letter<M> {
    message: M,
    seal: Seal,
}

struct Seal {
    node: Arc<RactorNode>,
    from: Option<NodePath>,
    message: &'static str,
    is_open: bool,
}

/// An actor as a node; its letters hold it, too.
//
// In this order, so that what is needed to stop it lies together: of very many, each place in memory
// that is looked at costs more than all else.
#[repr(C)]
struct RactorNode {
    /// How many handlers are done, of those that have begun.
    handled: AtomicU64,
    cell: OnceLock<ActorCell>,
    /// Somebody else sees to those beneath it. None if there are none, or nobody does.
    settling: OnceLock<Box<Settling>>,
    /// Whether there ever were letters.
    has_letters: AtomicBool,
    was_killed: AtomicBool,
    /// It has been given the pill: those beneath it are gone.
    is_alone: AtomicBool,
    record: Record,
    begun: AtomicU64,
    /// Letters that are not opened yet.
    sealed: AtomicUsize,
}

#[derive(Debug, Default)]
struct Settling {
    /// It has worked off what had come, and is about to stop,
    reached: SetOnce<()>,
    /// when this says that those beneath it are gone.
    released: SetOnce<()>,
}

/// An actor with what it takes to be drained around it. To ractor and to those who send it
/// messages it is the same actor.
struct Watched<A> {
    actor: A,
    // Last: it says that all else is gone.
    last: Last<RactorNode>,
}

/// An actor that will be started like this.
pub fn actor<A: Actor>(actor: A, args: A::Arguments) -> Unstarted<A> {
    Unstarted { actor, args }
}

// === impl Unstarted ===

impl<A: Actor> fmt::Debug for Unstarted<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstarted").finish_non_exhaustive()
    }
}

impl<A: Actor> Spawn for Unstarted<A> {
    type Ref = Ref<A::Msg>;

    async fn spawn_at(self, place: Place, path: NodePath) -> Result<Ref<A::Msg>, SpawnError> {
        let Place { system, link, .. } = place;
        let node = Arc::new(RactorNode::new(Record::new(path.clone(), &system.inner)));
        system.inner.join(Arc::clone(&node) as Arc<dyn Node>)?;
        let watched = Watched { actor: self.actor, last: Last::new(Arc::clone(&node)) };
        // It starts here, and not in a task of its own: with very many that makes a difference.
        let started = match link {
            Some(above) => ActorRuntime::spawn_linked(None, watched, self.args, above).await,
            None => ActorRuntime::spawn(None, watched, self.args).await,
        };
        match started {
            Ok((actor, _)) => Ok(Ref { actor, node }),
            Err(_) if node.was_killed.load(Ordering::Acquire) => Err(SpawnError::Killed { path }),
            Err(error) => Err(SpawnError::Start { path, error: error.to_string().into() }),
        }
    }
}

// === impl Ref ===

impl<M: Message> Ref<M> {
    /// Where it is in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// The actor as ractor knows it.
    #[must_use]
    pub fn actor_ref(&self) -> &ActorRef<M> {
        &self.actor
    }

    /// Sends a message. One that comes too late is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub fn send(&self, message: M) -> Result<(), MessagingErr<M>> {
        let sent = self.actor.send_message(message);
        sent.inspect_err(|_| self.node.record.came_too_late(std::any::type_name::<M>()))
    }

    /// Spawns another actor beneath this one, and resolves when it has started. One of ractor is
    /// linked to this one.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn).
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        match self.node.record.place() {
            Some(place) => {
                let link = Some(self.actor.get_cell());
                Place { link, ..place }.spawn(name, actor).await
            }
            None => Err(SpawnError::Gone { path: self.path().clone() }),
        }
    }

    /// Its end, for a task of a shutdown that tells it this message first. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn told(&self, message: M) -> Termination {
        let actor = self.clone();
        self.into_termination().telling(async move { drop(actor.send(message)) })
    }

    /// The actor as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Resolves when it has fully terminated, after its `post_stop`.
    pub async fn terminated(&self) -> Ended {
        self.node.record.ending.wait().await
    }
}

impl<M: Send + 'static> Ref<Letter<M>> {
    /// Sends a message in a letter, which is missed if it is lost. One that comes too late is a
    /// dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub fn post(&self, message: M) -> Result<(), MessagingErr<M>> {
        let letter = Letter::new(message, Arc::clone(&self.node));
        self.actor.send_message(letter).map_err(|error| {
            self.node.record.came_too_late(std::any::type_name::<M>());
            error.map(Letter::open)
        })
    }

    /// Its end, for a task of a shutdown that sends it this message in a letter first. See
    /// [`ActorTasks`](crate::ActorTasks).
    pub fn posted(&self, message: M) -> Termination {
        let actor = self.clone();
        self.into_termination().telling(async move { drop(actor.post(message)) })
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
        &self.actor
    }
}

impl<M> fmt::Debug for Ref<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref").field(self.node.path()).finish()
    }
}

// === impl Letter ===

impl<M> Letter<M> {
    fn new(message: M, node: Arc<RactorNode>) -> Self {
        node.has_letters.store(true, Ordering::Relaxed);
        node.sealed.fetch_add(1, Ordering::Relaxed);
        let from = Record::current_path();
        let seal = Seal { node, from, message: std::any::type_name::<M>(), is_open: false };
        Self { message, seal }
    }

    /// What is in it.
    pub fn open(self) -> M {
        let Self { message, mut seal } = self;
        seal.is_open = true;
        message
    }

    /// Who sent it, if that was an actor.
    #[must_use]
    pub fn from(&self) -> Option<&NodePath> {
        self.seal.from.as_ref()
    }
}

impl<M: fmt::Debug> fmt::Debug for Letter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Letter");
        debug.field("message", &self.message).field("from", &self.seal.from).finish()
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        self.node.sealed.fetch_sub(1, Ordering::Relaxed);
        if !self.is_open {
            self.node.record.left_behind(self.from.take(), Some(self.message), 1);
        }
    }
}

// === impl RactorNode ===

impl RactorNode {
    fn new(record: Record) -> Self {
        Self {
            record,
            cell: OnceLock::new(),
            was_killed: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            settling: OnceLock::new(),
            has_letters: AtomicBool::new(false),
            sealed: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            handled: AtomicU64::new(0),
        }
    }

    fn is_busy(&self) -> bool {
        self.begun.load(Ordering::Acquire) != self.handled.load(Ordering::Acquire)
    }

    /// What it was told when there was nobody to be told yet, it hears now.
    fn has_cell(&self, cell: ActorCell) {
        let cell = self.cell.get_or_init(|| cell);
        fence(Ordering::SeqCst); // See `cell`.
        if self.was_killed.load(Ordering::Relaxed) {
            cell.kill();
        } else if self.is_alone.load(Ordering::Relaxed) || self.settling.get().is_some() {
            self.pill();
        }
    }

    /// None if it is about to start. Then what was stored before this is seen when it has one.
    fn cell(&self) -> Option<&ActorCell> {
        self.cell.get().or_else(|| {
            fence(Ordering::SeqCst);
            self.cell.get()
        })
    }

    /// The pill, behind all that has come.
    fn pill(&self) {
        if let Some(cell) = self.cell() {
            let _ = cell.drain(); // Or it has stopped already.
        }
    }
}

impl Recorded for RactorNode {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl Node for RactorNode {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let settling = self.settling.get_or_init(Box::default);
            self.pill();
            // If it is too late for that, it ends, and is not waited for here.
            settling.reached.wait().await;
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.try_drain();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.was_killed.store(true, Ordering::Release);
        if let Some(cell) = self.cell() {
            cell.kill();
        }
    }

    fn try_drain(&self) -> bool {
        self.is_alone.store(true, Ordering::Release);
        if let Some(settling) = self.settling.get() {
            let _ = settling.released.set(());
        }
        self.pill();
        true
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn queued(&self) -> Option<usize> {
        let has_letters = self.has_letters.load(Ordering::Relaxed);
        has_letters.then(|| self.sealed.load(Ordering::Relaxed))
    }

    fn handled(&self) -> Option<u64> {
        Some(self.handled.load(Ordering::Relaxed))
    }

    fn dead_letters(&self) -> Option<u64> {
        let has_letters = self.has_letters.load(Ordering::Relaxed);
        has_letters.then(|| self.record.dead.load(Ordering::Relaxed))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            let mut pause = Duration::from_millis(1);
            let has_work = || self.is_busy() || self.queued().is_some_and(|queued| queued > 0);
            while self.record.ending.get().is_none() && has_work() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(25));
            }
            self.begun.load(Ordering::Acquire)
        })
    }
}

impl<M> IntoTermination for &Ref<M> {
    fn into_termination(self) -> Termination {
        Termination::of(self.node.clone())
    }
}

// === impl Watched ===

impl<A> Watched<A> {
    fn node(&self) -> &Arc<RactorNode> {
        self.last.node()
    }

    fn ends(&self, ended: Ended) {
        self.node().record.ending.say(ended);
    }

    fn failed<T>(&self, result: Result<T, ActorProcessingErr>) -> Result<T, ActorProcessingErr> {
        if let Err(error) = &result {
            self.ends(Ended::Failed { error: error.to_string().into() });
        }
        result
    }

    /// A panic goes on, and is known for what it was.
    fn caught<T>(
        &self,
        result: std::thread::Result<Result<T, ActorProcessingErr>>,
    ) -> Result<T, ActorProcessingErr> {
        match result {
            Ok(result) => self.failed(result),
            Err(panic) => {
                self.ends(Ended::Failed { error: said(&*panic).into() });
                resume_unwind(panic)
            }
        }
    }

    /// Those beneath it go first. None if there are none, as with most: then there is nothing to
    /// be waited for.
    fn beneath(&self, cell: &ActorCell) -> Option<BoxFuture<'_, ()>> {
        let node = &**self.node();
        let settling = node.settling.get();
        let is_seen_to = settling.is_some() || node.is_alone.load(Ordering::Acquire);
        // Those that were linked to it behind our back: ractor would kill them.
        let linked = cell.get_children();
        if settling.is_none() && is_seen_to && linked.is_empty() {
            return None;
        }
        let cell = cell.clone();
        Some(Box::pin(async move {
            if let Some(settling) = settling {
                let _ = settling.reached.set(());
                settling.released.wait().await;
            } else if !is_seen_to && let Some(system) = node.record.system() {
                // It stops by itself, so nobody else sees to them.
                system.stop_beneath(node.record.path(), Timeouts::STATELESS).await;
            }
            drain_linked(cell.get_children()).await;
        }))
    }

    /// Runs `work` as the code of this actor.
    fn scope<F: Future>(&self, work: F) -> Scoped<'_, F> {
        Scoped { work, node: self.node() }
    }
}

/// Drains these actors, those that are linked to them first.
async fn drain_linked(linked: Vec<ActorCell>) {
    let draining = linked.into_iter().map(|one| async move {
        Box::pin(drain_linked(one.get_children())).await;
        // Or it has stopped already; or it does not, and ractor kills it when this one has.
        let _ = one.drain_and_wait(Some(Timeouts::STATELESS)).await;
    });
    join_all(draining).await;
}

pin_project! {
    /// Runs as the code of an actor. By hand, because every actor has room for one of these.
    struct Scoped<'a, F> {
        #[pin]
        work: F,
        node: &'a Arc<RactorNode>,
    }
}

impl<F: Future> Future for Scoped<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        within(this.node, || this.work.poll(cx))
    }
}

pin_project! {
    /// A handler at work.
    struct Handling<'a, A, F> {
        #[pin]
        work: F,
        at_work: AtWork<'a, A>,
    }
}

impl<A, T, F> Future for Handling<'_, A, F>
where
    F: Future<Output = Result<T, ActorProcessingErr>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let watched = this.at_work.0;
        within(watched.node(), || this.work.poll(cx)).map(|handled| watched.failed(handled))
    }
}

pin_project! {
    /// A stop hook at work. By hand, because it is allocated for every actor that stops: with very
    /// many, a few bytes more cost a tenth of the time.
    #[project = StoppingProj]
    enum Stopping<'a, A, F> {
        At { #[pin] work: F, watched: &'a Watched<A> },
        /// It panicked before there was anything to be polled.
        Panicked { panic: Option<Box<dyn Any + Send>> },
    }
}

impl<A, F> Future for Stopping<'_, A, F>
where
    F: Future<Output = Result<(), ActorProcessingErr>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (work, watched) = match self.project() {
            StoppingProj::At { work, watched } => (work, watched),
            StoppingProj::Panicked { panic } => match panic.take() {
                Some(panic) => resume_unwind(panic),
                None => return Poll::Pending, // It has panicked before.
            },
        };
        let work = || within(watched.node(), || work.poll(cx));
        let polled = catch_unwind(AssertUnwindSafe(work));
        let ended = match &polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => Ended::Stopped,
            Ok(Poll::Ready(Err(error))) => Ended::HookFailed { error: error.to_string().into() },
            Err(panic) => Ended::HookFailed { error: said(&**panic).into() },
        };
        watched.ends(ended);
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// While this is alive a handler is at work.
struct AtWork<'a, A>(&'a Watched<A>);

impl<A> Drop for AtWork<'_, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ends(Ended::Failed { error: "a handler panicked".into() });
        }
        // Nobody else writes to it.
        let handled = &self.0.node().handled;
        handled.store(handled.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl<A: Actor> Actor for Watched<A> {
    type Msg = A::Msg;
    type State = A::State;
    type Arguments = A::Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        args: A::Arguments,
    ) -> Result<A::State, ActorProcessingErr> {
        self.node().has_cell(myself.get_cell()); // From now on it can be killed.
        let starting = AssertUnwindSafe(self.actor.pre_start(myself, args)).catch_unwind();
        self.caught(self.scope(starting).await)
    }

    async fn post_start(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let starting = AssertUnwindSafe(self.actor.post_start(myself, state)).catch_unwind();
        self.caught(self.scope(starting).await)
    }

    fn post_stop(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut A::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        let beneath = self.beneath(&myself);
        let stop = move || {
            let work = || within(self.node(), || self.actor.post_stop(myself, state));
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(work) => Stopping::At { work, watched: self },
                Err(panic) => {
                    self.ends(Ended::HookFailed { error: said(&*panic).into() });
                    Stopping::Panicked { panic: Some(panic) }
                }
            }
        };
        match beneath {
            None => Either::Left(stop()),
            Some(beneath) => Either::Right(Box::pin(async move {
                beneath.await;
                stop().await
            })),
        }
    }

    fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        let begun = &self.node().begun;
        begun.store(begun.load(Ordering::Relaxed) + 1, Ordering::Release);
        let at_work = AtWork(self);
        Handling { work: self.actor.handle(myself, message, state), at_work }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        message: SupervisionEvent,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        // Boxed: it is rare, and every actor would have room for it.
        let handled = Box::pin(self.actor.handle_supervisor_evt(myself, message, state));
        let handled = self.scope(handled).await;
        self.failed(handled)
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::ActorSystem;

    struct Quiet;

    impl Actor for Quiet {
        type Msg = ();
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_is_told_before_it_starts_is_not_lost() {
        let system = ActorSystem::new("test");
        let tells: [fn(&RactorNode); 3] = [
            |node| assert!(node.try_drain()),
            |node| assert!(node.settle().now_or_never().is_none()),
            RactorNode::kill,
        ];
        for tell in tells {
            let path = NodePath::user().child("quiet").unwrap();
            let node = RactorNode::new(Record::new(path, &system.inner));
            let (actor, _) = Actor::spawn(None, Quiet, ()).await.unwrap();
            tell(&node);
            node.has_cell(actor.get_cell());
            actor.wait(Some(Duration::from_secs(60))).await.expect("it ends");
        }
    }
}
