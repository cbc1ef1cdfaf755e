//! A named root above all actors: `/user` for the application's, `/system` for our own.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use adieu_core::{AddTaskError, Deadline, Phase, Reason, Shutdown, TaskCx, TaskSpec};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::sync::watch;

use crate::drain::{Countdown, Members};
use crate::gather::gather;
use crate::letters::{DeadLetter, DeadLetterSubscription, Letters};
use crate::node::Node;
use crate::path::{NameError, NodePath};
use crate::record::Record;
use crate::report::DrainReport;
use crate::roster::Roster;
use crate::tree::TreeView;

/// A named root above all actors of an application.
///
/// Cheap to clone; all clones are the same system. An actor that is spawned through it is drained
/// with it, in its place in the tree: those beneath it first.
#[derive(Clone)]
pub struct ActorSystem {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    name: Arc<str>,
    tree: Mutex<Tree>,
    /// Nobody may join any more. Written under the lock of the tree.
    pub(crate) is_closed: Arc<AtomicBool>,
    pub(crate) letters: Letters,
    countdown: Countdown,
    grace: Duration,
    stage: watch::Sender<SystemStage>,
    shutdown: Option<Shutdown>,
    ending: OnceLock<Shared<BoxFuture<'static, Arc<DrainReport>>>>,
}

#[derive(Default)]
struct Tree {
    nodes: Roster,
    /// Those that are being drained with the system.
    draining: Arc<Vec<Arc<dyn Node>>>,
    guardian: Option<NodePath>,
}

/// How far a system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SystemStage {
    /// Actors can be spawned.
    Running,
    /// It is being drained, or is about to be.
    Terminating,
    /// All actors have ended, or were given up.
    Terminated,
}

/// Where an actor can be spawned: in a system, beneath another actor.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) system: ActorSystem,
    pub(crate) path: NodePath,
    #[cfg(feature = "ractor")]
    pub(crate) link: Option<ractor::ActorCell>,
}

/// Something that can be spawned: an actor that has not started yet.
pub trait Spawn: Send {
    /// What it is spoken to through.
    type Ref;

    /// Registers it at this path, starts it, and resolves when it has started.
    fn spawn_at(
        self,
        place: Place,
        path: NodePath,
    ) -> impl Future<Output = Result<Self::Ref, SpawnError>> + Send;
}

/// Why an actor was not spawned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The system is terminating.
    #[error("{path} was not spawned: actor system {system} is terminating")]
    Terminating {
        /// Which actor.
        path: NodePath,
        /// Which system.
        system: Arc<str>,
    },
    /// There is one of that name already.
    #[error(
        "{path} was not spawned: there is an actor of that name; choose another, or stop it first"
    )]
    NameTaken {
        /// Which actor.
        path: NodePath,
    },
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The system of the actor beneath which it was to be is gone.
    #[error("nothing was spawned beneath {path}: its actor system is gone")]
    Gone {
        /// Beneath which actor.
        path: NodePath,
    },
    /// Its start failed or panicked.
    #[error("{path} did not start: {error}")]
    Start {
        /// Which actor.
        path: NodePath,
        /// What it said.
        error: Arc<str>,
    },
    /// It was killed before it had started.
    #[error("{path} was killed before it had started")]
    Killed {
        /// Which actor.
        path: NodePath,
    },
}

/// Why the end of a system cannot be awaited here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TerminateError {
    /// One of its own actors would wait for its own end. The system terminates all the same, when
    /// somebody else awaits that.
    #[error("an actor cannot await the end of its own system: it would wait for itself")]
    InsideActor,
}

// === impl ActorSystem ===

impl ActorSystem {
    /// A system of its own, that terminates when it is told to.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::build(name.into(), None)
    }

    /// A system that is part of a coordinated shutdown: its last phase terminates the system
    /// (unless `terminate-actor-system` is off for the reason), and if the system
    /// [terminates](Self::terminate) first, that runs the shutdown (unless
    /// `run-by-actor-system-terminate` is off).
    ///
    /// # Errors
    ///
    /// If the shutdown has come too far for another task in its last phase.
    pub fn on(shutdown: &Shutdown, name: impl Into<Arc<str>>) -> Result<Self, AddTaskError> {
        let system = Self::build(name.into(), Some(shutdown.clone()));
        let (inside, described) = (system.weak(), system.weak());
        let task = TaskSpec::new(format!("terminate actor system {}", system.name())).describe(
            move || described.upgrade().map_or_else(String::new, |system| system.waits_for()),
        );
        shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, task, async move |cx| {
            match inside.upgrade() {
                Some(inner) => Self { inner }.last_phase(&cx).await,
                None => Ok(()),
            }
        })?;
        Ok(system)
    }

    fn build(name: Arc<str>, shutdown: Option<Shutdown>) -> Self {
        let inner = Inner {
            name,
            tree: Mutex::default(),
            is_closed: Arc::default(),
            letters: Letters::default(),
            countdown: Countdown::new(),
            grace: Timeouts::GRACE,
            stage: watch::Sender::new(SystemStage::Running),
            shutdown,
            ending: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// How far it is.
    #[must_use]
    pub fn stage(&self) -> SystemStage {
        *self.inner.stage.borrow()
    }

    /// Spawns an actor beneath `/user`, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// If the system is terminating, the name is taken or none, or the start fails.
    ///
    /// # Cancel safety
    ///
    /// An actor of kameo whose spawning is not awaited to the end goes on starting; one of ractor is
    /// dropped.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        self.place(NodePath::user()).spawn(name, actor).await
    }

    /// Takes a node of your own into the tree, at the path that it says.
    ///
    /// # Errors
    ///
    /// If the system is terminating, or there is one at this path.
    pub fn register(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        self.inner.join(node)
    }

    /// Takes a node out of the tree, without stopping it. False if there is none.
    #[expect(clippy::must_use_candidate, reason = "it is there to be taken out")]
    pub fn remove(&self, path: &NodePath) -> bool {
        let removed = self.inner.tree().nodes.leave(path);
        removed.is_some()
    }

    /// When this actor ends, so does the system. At once, if it is not there any more.
    pub fn guardian(&self, path: &NodePath) {
        let has_ended = {
            let mut tree = self.inner.tree();
            tree.guardian = Some(path.clone());
            tree.nodes.get(path).is_none()
        };
        if has_ended {
            self.inner.guardian_ended();
        }
    }

    /// Who is there, and what they have to do.
    #[must_use]
    pub fn tree(&self) -> TreeView {
        TreeView::of(self.name(), self.inner.nodes().iter().map(|node| &**node))
    }

    /// Drains one actor and all beneath it, those first. None if there is none at this path, or if
    /// it is being drained with the whole system.
    ///
    /// What is not gone when the time is up is killed.
    pub async fn stop(&self, path: &NodePath, timeout: Duration) -> Option<DrainReport> {
        let members = self.inner.members(path)?;
        Some(members.drain(&Countdown::until(Deadline::after(timeout)), self.inner.grace).await)
    }

    /// Drains all that are beneath an actor, and not itself. An actor of kameo that stops by itself
    /// can do so in its stop hook; for those of ractor it is done.
    ///
    /// What is not gone when the time is up is killed.
    pub async fn stop_beneath(&self, path: &NodePath, timeout: Duration) -> DrainReport {
        let members = self.inner.members_beneath(path);
        members.drain(&Countdown::until(Deadline::after(timeout)), self.inner.grace).await
    }

    /// Terminates the system, by way of the coordinated shutdown if it is part of one and so
    /// configured: then all its phases run, the last of which drains the actors.
    ///
    /// Called inside a task of that shutdown, which could not wait for itself, it drains the
    /// actors at once.
    ///
    /// # Errors
    ///
    /// If one of the system's own actors calls it; the system terminates all the same.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; but without a coordinated shutdown the draining goes on only while
    /// somebody awaits it.
    pub async fn terminate(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        if let Some(shutdown) = self.inner.coordinated() {
            let completion = shutdown.run(Reason::ActorSystemTerminate);
            shutdown.shorten(timeout);
            self.not_inside()?;
            // If it cannot be awaited here, or has ended without us, there is nothing to wait for.
            let _ = completion.await;
        }
        self.shutdown(timeout).await
    }

    /// Drains all actors: those under `/user`, then our own. Every call, also while it is under
    /// way, awaits the same result; one with less time leaves less for all.
    ///
    /// This does not wait for a coordinated shutdown; but if the system is part of one, and so
    /// configured, that runs when the actors are gone.
    ///
    /// # Errors
    ///
    /// If one of the system's own actors calls it.
    ///
    /// # Cancel safety
    ///
    /// The draining goes on while somebody awaits it, and when somebody does so again.
    pub async fn shutdown(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        let report = self.abort(timeout).await?;
        if let Some(shutdown) = self.inner.coordinated() {
            drop(shutdown.run(Reason::ActorSystemTerminate));
        }
        Ok(report)
    }

    /// Drains all actors as [`shutdown`](Self::shutdown) does, but skips the coordinated shutdown.
    ///
    /// # Errors
    ///
    /// If one of the system's own actors calls it.
    pub async fn abort(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        self.inner.countdown.shorten(Deadline::after(timeout));
        self.inner.close();
        self.not_inside()?;
        Ok(self.inner.ending().await)
    }

    /// Resolves when the system has terminated, whoever told it to; until then it drives what has
    /// been begun.
    pub async fn terminated(&self) -> Arc<DrainReport> {
        let mut stages = self.inner.stage.subscribe();
        // Its sender is held by us.
        let _ = stages.wait_for(|stage| *stage > SystemStage::Running).await;
        self.inner.ending().await
    }

    /// Resolves when no actor under `/user` has anything to do, with true; or at the deadline, with
    /// false.
    ///
    /// Nobody from outside should be sending meanwhile: what is quiet now may be asked something
    /// in the next moment. An actor that awaits a timer in a handler is busy; one whose timer will
    /// send it a message is not.
    pub async fn await_quiescence(&self, deadline: Deadline) -> bool {
        let quiet = async {
            let mut before = None;
            let mut pause = Duration::from_millis(1);
            loop {
                let nodes = self.inner.tree().nodes.beneath(&NodePath::user()).nodes;
                let counts = nodes.iter().map(|node| node.idle());
                let now = futures_util::future::join_all(counts).await;
                // Twice the same: nobody has worked while the others were being asked.
                if before.as_ref() == Some(&now) {
                    return;
                }
                before = Some(now);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(25));
            }
        };
        tokio::time::timeout_at(deadline.instant(), quiet).await.is_ok()
    }

    /// How many messages nobody worked off, as far as that can be seen.
    #[must_use]
    pub fn dead_letter_count(&self) -> u64 {
        self.inner.letters.count()
    }

    /// The latest of them, at most a thousand, the oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.inner.letters.latest()
    }

    /// Counts a message that a node of your own did not work off. For those of kameo and ractor
    /// this is done.
    pub fn add_dead_letter(&self, letter: &DeadLetter) {
        self.inner.letters.add(letter, 1);
    }

    /// Hears of each dead letter from now on.
    #[must_use]
    pub fn subscribe_to_dead_letters(&self) -> DeadLetterSubscription {
        self.inner.letters.subscribe()
    }

    pub(crate) fn place(&self, path: NodePath) -> Place {
        Place {
            system: self.clone(),
            path,
            #[cfg(feature = "ractor")]
            link: None,
        }
    }

    fn weak(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    fn not_inside(&self) -> Result<(), TerminateError> {
        match Record::current(|record| record.is_of(&self.inner)) {
            Some(true) => Err(TerminateError::InsideActor),
            Some(false) | None => Ok(()),
        }
    }

    /// The task in the last phase of the shutdown.
    async fn last_phase(&self, cx: &TaskCx) -> Result<(), String> {
        let policy = self.inner.shutdown.as_ref().map(|shutdown| shutdown.policy(cx.reason()));
        if policy.is_some_and(|policy| !policy.terminate_actor_system) {
            return Ok(());
        }
        // Who is killed has its grace within our time.
        let left = cx.remaining();
        let timeout = left.saturating_sub(self.inner.grace + Timeouts::SPARE).max(left / 2);
        self.inner.countdown.shorten(Deadline::after(timeout));
        self.inner.close();
        let draining = self.inner.ending();
        let report = tokio::select! {
            biased;
            report = draining.clone() => report,
            () = cx.cancelled() => {
                self.inner.countdown.shorten(Deadline::after(Duration::ZERO));
                draining.await
            }
        };
        if report.is_clean() { Ok(()) } else { Err(report.to_string()) }
    }
}

impl fmt::Debug for ActorSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ActorSystem");
        debug.field("name", self.name()).field("stage", &self.stage()).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        let path = node.path().clone();
        let mut tree = self.tree();
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(SpawnError::Terminating { path, system: Arc::clone(&self.name) });
        }
        if tree.nodes.get(&path).is_some() {
            return Err(SpawnError::NameTaken { path });
        }
        tree.nodes.join(path, node);
        Ok(())
    }

    /// An actor has ended.
    pub(crate) fn left(&self, record: &Record) {
        let (removed, was_guardian) = {
            let mut tree = self.tree();
            let there = tree.nodes.get(record.path());
            // Another one may have its name by now.
            let is_it = there.is_some_and(|node| std::ptr::eq(node.path(), record.path()));
            let is_guarded = tree.guardian.as_ref() == Some(record.path());
            let was_guardian = is_guarded && (is_it || there.is_none());
            (if is_it { tree.nodes.leave(record.path()) } else { None }, was_guardian)
        };
        drop(removed); // Not under the lock: it holds what the user gave us.
        if was_guardian {
            self.guardian_ended();
        }
    }

    /// The shutdown that our end is to run.
    fn coordinated(&self) -> Option<&Shutdown> {
        self.shutdown.as_ref().filter(|shutdown| shutdown.runs_by_actor_system_terminate())
    }

    fn guardian_ended(&self) {
        self.close();
        if let Some(shutdown) = self.coordinated() {
            drop(shutdown.run(Reason::ActorSystemTerminate));
        }
    }

    /// From now on nobody may join.
    fn close(&self) {
        {
            let _tree = self.tree();
            self.is_closed.store(true, Ordering::Release);
        }
        self.stage.send_if_modified(|stage| {
            let was_running = *stage == SystemStage::Running;
            *stage = (*stage).max(SystemStage::Terminating);
            was_running
        });
    }

    /// The draining of the whole system, which all who want it share.
    fn ending(self: &Arc<Self>) -> Shared<BoxFuture<'static, Arc<DrainReport>>> {
        let ending = self.ending.get_or_init(|| {
            let system = Arc::downgrade(self);
            async move {
                match system.upgrade() {
                    Some(system) => Arc::new(system.terminate().await),
                    None => Arc::new(DrainReport::empty()),
                }
            }
            .boxed()
            .shared()
        });
        ending.clone()
    }

    async fn terminate(&self) -> DrainReport {
        self.close();
        let user = self.take_out(&NodePath::user()).drain(&self.countdown, self.grace).await;
        let own = self.take_out(&NodePath::system()).drain(&self.countdown, self.grace).await;
        let took = user.took + own.took;
        let report = DrainReport { took, ..DrainReport::merged([user, own]) };
        tracing::debug!(system = &*self.name, %report, "actor system terminated");
        self.stage.send_replace(SystemStage::Terminated);
        report
    }

    /// All that are there.
    fn nodes(&self) -> Vec<Arc<dyn Node>> {
        let mut nodes: Vec<Arc<dyn Node>> = {
            let tree = self.tree();
            tree.nodes.by_path().chain(&*tree.draining).map(Arc::clone).collect()
        };
        nodes.retain(|node| node.has_terminated().is_none());
        nodes
    }

    /// A node and all beneath it.
    fn members(&self, path: &NodePath) -> Option<Members> {
        let (top, beneath) = {
            let tree = self.tree();
            (Arc::clone(tree.nodes.get(path)?), tree.nodes.beneath(path))
        };
        Some(gather(path, Some(top), beneath).into())
    }

    fn members_beneath(&self, path: &NodePath) -> Members {
        let beneath = self.tree().nodes.beneath(path);
        gather(path, None, beneath).into()
    }

    /// All beneath this path, which are drained with the system and not found in the tree any
    /// more. Nobody can join them.
    fn take_out(&self, path: &NodePath) -> Members {
        let taken = self.tree().nodes.take_out(path);
        let members = Members::from(gather(path, None, taken));
        let before = std::mem::replace(&mut self.tree().draining, members.nodes());
        drop(before); // Not under the lock.
        members
    }

    /// What the one on call wants to know.
    fn waits_for(&self) -> String {
        const NAMED: usize = 3;
        let nodes = self.nodes();
        let named = nodes.iter().take(NAMED).map(|node| match node.queued() {
            Some(queued) if queued > 0 => format!("{} ({queued} queued)", node.path()),
            Some(_) | None => node.path().to_string(),
        });
        let named: Vec<String> = named.collect();
        let more = nodes.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        if nodes.is_empty() { String::new() } else { format!("{}{more}", named.join(", ")) }
    }
}

// === impl Place ===

impl Place {
    /// In which system.
    #[must_use]
    pub fn system(&self) -> &ActorSystem {
        &self.system
    }

    /// Beneath which path.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Spawns an actor here, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`].
    pub async fn spawn<S: Spawn>(self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        let path = self.path.child(name)?;
        actor.spawn_at(self, path).await
    }
}

/// How long actors should have to drain, by what they do.
///
/// An actor works off everything that has come before it takes the pill: think of the largest
/// backlog. What a killed actor leaves behind goes to the dead letters.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "it has no values; it is a name for the constants")]
pub enum Timeouts {}

impl Timeouts {
    /// Workers that hold no state, such as those of an HTTP server.
    pub const STATELESS: Duration = Duration::from_secs(5);
    /// Actors that write to a database.
    pub const DATABASE_WRITES: Duration = Duration::from_secs(15);
    /// Event-sourced actors, which may be in the middle of a snapshot.
    pub const EVENT_SOURCED: Duration = Duration::from_secs(30);
    /// A pool of worker threads that send each other messages.
    pub const WORKER_THREADS: Duration = Duration::from_secs(30);

    /// What a killed actor has for its stop hook.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// What the last phase keeps, to say how it went.
    const SPARE: Duration = Duration::from_millis(100);
}
