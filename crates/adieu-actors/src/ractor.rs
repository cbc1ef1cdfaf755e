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
//! An actor that stops by itself, or whose handler fails or panics, has its children drained before
//! it ends.
//!
//! # Send through [`Ref`]
//!
//! During a drain, messages that are sent with [`Ref::send`] or [`Ref::post`] are accepted from
//! actors that are being drained, too, until no actor has anything to do, and refused to everything
//! else. Those that are refused are dead letters. Messages through ractor's own [`ActorRef`] are
//! accepted from everywhere until then; adieu sees them when they are handled, but not in the
//! mailbox, and does not see when ractor refuses one.
//!
//! # What ractor does not do
//!
//! A killed actor, and one whose handler panicked, does not run its `post_stop`. What it leaves
//! behind vanishes, and its number is unknown, unless its messages come in a [`Letter`].
//!
//! ractor's features `async-trait` and `cluster` change its traits; this works without them.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use ::ractor::{
    Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime, Message, MessagingErr,
    SupervisionEvent,
};
use futures_util::future::{BoxFuture, Either, FutureExt, join_all};
use pin_project_lite::pin_project;

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::quiet::pause_after;
use crate::record::{Last, Record, Recorded, panic_text, within};
use crate::spawn::{Place, Spawn, SpawnError};
use crate::termination::{IntoTermination, Termination};
use crate::timeouts::Timeouts;

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

thread_local! {
    /// Whether a letter was dropped unopened on this thread. See [`Handling`].
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// An actor as a node. Its letters hold it, too.
//
// In this order, so that what is needed to stop it lies together: of very many, each place in memory
// that is looked at costs more than all else.
#[repr(C)]
struct RactorNode {
    /// How many handlers have come to their end, of those that have begun.
    handled: AtomicU64,
    cell: OnceLock<ActorCell>,
    /// Whether there ever were letters.
    has_letters: AtomicBool,
    was_killed: AtomicBool,
    record: Record,
    begun: AtomicU64,
    /// Messages that were sent through a [`Ref`].
    sent: AtomicU64,
    /// Letters that are not opened yet.
    sealed: AtomicUsize,
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

    /// Sends a message. One that is refused is a dead letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub fn send(&self, message: M) -> Result<(), MessagingErr<M>> {
        let sent = self.admit(message);
        sent.inspect_err(|_| self.node.record.came_too_late(std::any::type_name::<M>()))
    }

    /// Sends a message if the actor's door is open to the code that runs here.
    fn admit(&self, message: M) -> Result<(), MessagingErr<M>> {
        let node = &*self.node;
        // Counted before the door is looked at; see `Door`.
        node.sent.fetch_add(1, Ordering::SeqCst);
        node.record.note_work();
        let sent = if node.record.admits() {
            self.actor.send_message(message)
        } else {
            Err(MessagingErr::SendErr(message))
        };
        sent.inspect_err(|_| {
            node.sent.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// Spawns another actor below this one, and resolves when it has started. One of ractor is
    /// linked to this one.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn); also if this actor has ended or been
    /// told to stop. During a drain only actors that are being drained can spawn.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        let place = self.node.record.place(name)?;
        let link = Some(self.actor.get_cell());
        Place { link, ..place }.spawn(name, actor).await
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
    /// Sends a message in a letter, which is counted if it is lost. One that is refused is a dead
    /// letter.
    ///
    /// # Errors
    ///
    /// If the actor has stopped, or is about to. The message is in the error.
    pub fn post(&self, message: M) -> Result<(), MessagingErr<M>> {
        let letter = Letter::new(message, Arc::clone(&self.node));
        self.admit(letter).map_err(|error| {
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
            LOST.set(true);
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
            has_letters: AtomicBool::new(false),
            sealed: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Whether a handler runs, or a message that was sent through a `Ref` waits for one.
    fn is_busy(&self) -> bool {
        // In this order: a message is sent before its handler begins, and that before it ends.
        let handled = self.handled.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        begun != handled || self.sent.load(Ordering::SeqCst) > begun
    }

    /// Waits until it has nothing to do, as far as that can be seen.
    async fn until_quiet(&self) {
        let began = tokio::time::Instant::now();
        while self.record.ending.get().is_none() && self.quiet().is_none() {
            tokio::time::sleep(pause_after(began)).await;
        }
    }

    /// What it was told when there was nobody to be told yet, it hears now.
    fn has_cell(&self, cell: ActorCell) {
        let cell = self.cell.get_or_init(|| cell);
        fence(Ordering::SeqCst); // See `cell`.
        if self.was_killed.load(Ordering::Relaxed) {
            cell.kill();
        } else if self.record.door.is_closed() {
            self.stop();
        }
    }

    /// None if it is about to start. Then what was stored before this is seen when it has one.
    fn cell(&self) -> Option<&ActorCell> {
        self.cell.get().or_else(|| {
            fence(Ordering::SeqCst);
            self.cell.get()
        })
    }

    /// Tells it to stop when it has processed what it has accepted.
    fn stop(&self) {
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

    fn begin_drain(&self) {
        self.record.door.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        // It is not told to stop: ractor would then refuse what its children still have to say.
        Box::pin(async {
            tokio::select! {
                biased;
                () = self.until_quiet() => {}
                () = self.record.settling.reached() => {}
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.try_drain();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.was_killed.store(true, Ordering::Release);
        self.record.close_door();
        if let Some(cell) = self.cell() {
            cell.kill();
        }
    }

    fn try_drain(&self) -> bool {
        self.record.close_door();
        self.stop();
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
        // An actor that stopped has processed all that ractor had accepted for it.
        let is_stopped = || matches!(self.record.ending.get(), Some(Ended::Stopped));
        let is_known = self.has_letters.load(Ordering::Relaxed) || is_stopped();
        is_known.then(|| self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        let is_busy = self.is_busy() || self.sealed.load(Ordering::Relaxed) > 0;
        (!is_busy).then(|| self.begun.load(Ordering::SeqCst))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.until_quiet().await;
            self.begun.load(Ordering::SeqCst)
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

    /// A handler has come to its end.
    fn handled(&self) {
        // The actor alone writes to it.
        let handled = &self.node().handled;
        handled.store(handled.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
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
                self.ends(Ended::Failed { error: panic_text(&*panic).into() });
                resume_unwind(panic)
            }
        }
    }

    /// Lets the children end first. `None` if there is nothing to wait for, as with most.
    fn children(&self, cell: &ActorCell) -> Option<BoxFuture<'_, ()>> {
        let record = &self.node().record;
        // Children that were linked to it behind our back: ractor would kill them.
        if record.door.is_closed() && cell.get_children().is_empty() {
            return None;
        }
        let cell = cell.clone();
        Some(Box::pin(async move {
            record.let_children_end_first().await;
            if !record.is_draining()
                && let Some(system) = record.system()
            {
                // It ends by itself, so nothing else takes care of them.
                system.stop_beneath(record.path(), Timeouts::STATELESS).await;
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
        // Dropped before the rest, to see whether a letter is lost with it.
        #[pin]
        work: Option<F>,
        watched: &'a Watched<A>,
        failing: Option<Box<Failing<'a>>>,
        message: &'static str,
        is_done: bool,
    }

    impl<A, F> PinnedDrop for Handling<'_, A, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if !*this.is_done {
                LOST.set(false);
                this.work.set(None);
                if !LOST.get() {
                    this.watched.node().record.interrupted(None, this.message);
                }
            }
        }
    }
}

/// A handler that has failed. The actor ends when its children have: ractor would kill them.
struct Failing<'a> {
    children: BoxFuture<'a, ()>,
    with: Option<Failure>,
}

enum Failure {
    Error(ActorProcessingErr),
    Panic(Box<dyn Any + Send>),
}

impl<'a, A, F> Future for Handling<'a, A, F>
where
    F: Future<Output = Result<(), ActorProcessingErr>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let watched: &'a Watched<A> = this.watched;
        if this.failing.is_none() {
            let Some(work) = this.work.as_pin_mut() else { return Poll::Pending };
            let work = || within(watched.node(), || work.poll(cx));
            let failure = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(handled)) => {
                    *this.is_done = true;
                    watched.handled();
                    match watched.failed(handled) {
                        Ok(()) => return Poll::Ready(Ok(())),
                        Err(error) => Failure::Error(error),
                    }
                }
                Err(panic) => {
                    watched.ends(Ended::Failed { error: panic_text(&*panic).into() });
                    Failure::Panic(panic)
                }
            };
            let cell = watched.node().cell();
            let children = cell.and_then(|cell| watched.children(cell));
            let children = children.unwrap_or_else(|| Box::pin(std::future::ready(())));
            *this.failing = Some(Box::new(Failing { children, with: Some(failure) }));
        }
        let Some(failing) = this.failing else { return Poll::Pending };
        ready!(failing.children.poll_unpin(cx));
        match failing.with.take() {
            Some(Failure::Error(error)) => Poll::Ready(Err(error)),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            None => Poll::Pending, // It has failed before.
        }
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
            Err(panic) => Ended::HookFailed { error: panic_text(&**panic).into() },
        };
        watched.ends(ended);
        polled.unwrap_or_else(|panic| resume_unwind(panic))
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
        let children = self.children(&myself);
        let stop = move || {
            let work = || within(self.node(), || self.actor.post_stop(myself, state));
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(work) => Stopping::At { work, watched: self },
                Err(panic) => {
                    self.ends(Ended::HookFailed { error: panic_text(&*panic).into() });
                    Stopping::Panicked { panic: Some(panic) }
                }
            }
        };
        match children {
            None => Either::Left(stop()),
            Some(children) => Either::Right(Box::pin(async move {
                children.await;
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
        let count = begun.load(Ordering::Relaxed) + 1;
        begun.store(count, Ordering::SeqCst);
        if count == 1 {
            self.node().record.note_work(); // It may have been sent through ractor's own reference.
        }
        let work = Some(self.actor.handle(myself, message, state));
        let message = std::any::type_name::<A::Msg>();
        Handling { work, watched: self, failing: None, message, is_done: false }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let tells: [fn(&RactorNode); 2] = [|node| assert!(node.try_drain()), RactorNode::kill];
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
