//! A named root above all actors: `/user` for the application's, `/system` for internal ones.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use adieu_core::{AddTaskError, Deadline, Phase, Reason, Shutdown, TaskCx, TaskSpec, WeakShutdown};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::countdown::Countdown;
use crate::doors::Doors;
use crate::drain::{Members, Setting};
use crate::gather::gather;
use crate::letters::{DeadLetter, DeadLetterSubscription, Letters};
use crate::node::{Node, caught};
use crate::path::NodePath;
use crate::quiet::{Found, until_quiet};
use crate::record::{Record, is_inside};
use crate::report::DrainReport;
use crate::roster::Roster;
use crate::spawn::{Place, Spawn, SpawnError};
use crate::timeouts::Timeouts;
use crate::tree::TreeView;

/// A named root above all actors of an application.
///
/// Cheap to clone; all clones are the same system. An actor that is spawned through it is drained
/// with it, in its place in the tree: children first.
#[derive(Clone)]
pub struct ActorSystem {
    pub(crate) inner: Arc<Inner>,
    /// The shutdown lives for as long as a handle of the system does. The system itself does not
    /// keep it alive: the shutdown owns the system, through its task in `actor-system-terminate`.
    _keeps: Option<Shutdown>,
}

pub(crate) struct Inner {
    name: Arc<str>,
    tree: Mutex<Tree>,
    /// Changed under the lock of the tree.
    pub(crate) doors: Arc<Doors>,
    pub(crate) letters: Letters,
    countdown: Countdown,
    /// The least time that a caller of `terminate` gave the actors, from when their turn comes.
    allowed: Mutex<Option<Duration>>,
    grace: Duration,
    stage: watch::Sender<SystemStage>,
    shutdown: Option<WeakShutdown>,
    ending: OnceLock<Shared<BoxFuture<'static, Arc<DrainReport>>>>,
    /// Drains of single actors and their children, which go on when their caller goes away.
    stops: TaskTracker,
}

#[derive(Default)]
struct Tree {
    nodes: Roster,
    /// Those that are being drained with the system.
    draining: Arc<Vec<Arc<dyn Node>>>,
    /// Paths at and below which nothing may join, because they are being stopped.
    sealed: Vec<NodePath>,
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

/// Why the end of a system cannot be awaited here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TerminateError {
    /// One of its own actors would wait for its own end. The system terminates all the same, when
    /// other code awaits that.
    #[error("an actor cannot await the end of its own system: it would wait for itself")]
    InsideActor,
}

// === impl ActorSystem ===

impl ActorSystem {
    /// Creates a system that is not part of a shutdown. It terminates when it is told to.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { inner: Arc::new(Inner::new(name.into(), None)), _keeps: None }
    }

    /// Creates a system that is part of a coordinated shutdown: its phase `actor-system-terminate`
    /// terminates the system (unless `terminate-actor-system` is off for the reason), and if the
    /// system [terminates](Self::terminate) first, that runs the shutdown (unless
    /// `run-by-actor-system-terminate` is off).
    ///
    /// The shutdown owns the system: its actors are drained also if every handle has been dropped.
    ///
    /// # Errors
    ///
    /// If the shutdown has come too far for another task in that phase.
    pub fn on(shutdown: &Shutdown, name: impl Into<Arc<str>>) -> Result<Self, AddTaskError> {
        let inner = Arc::new(Inner::new(name.into(), Some(shutdown.downgrade())));
        let (inside, described) = (Arc::clone(&inner), Arc::clone(&inner));
        let task = TaskSpec::new(format!("terminate actor system {}", inner.name))
            .describe(move || described.waits_for());
        shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, task, async move |cx| {
            inside.last_phase(&cx).await
        })?;
        Ok(Self { inner, _keeps: Some(shutdown.clone()) })
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        let shutdown = inner.shutdown.as_ref().and_then(WeakShutdown::upgrade);
        Self { inner, _keeps: shutdown }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// Returns how far it is.
    #[must_use]
    pub fn stage(&self) -> SystemStage {
        *self.inner.stage.borrow()
    }

    /// Spawns an actor below `/user`, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// If the system is terminating, the name is taken or not valid, or the start fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, an actor of kameo goes on starting; one of ractor is dropped.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        self.place(NodePath::user()).spawn(name, actor).await
    }

    /// Spawns an actor below `/system`, whose actors are stopped after those below `/user`.
    ///
    /// For what the application's actors depend on, such as a log or a store.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`].
    pub async fn spawn_system_actor<S: Spawn>(
        &self,
        name: &str,
        actor: S,
    ) -> Result<S::Ref, SpawnError> {
        self.place(NodePath::system()).spawn(name, actor).await
    }

    /// Adds a node of your own to the tree, at the path that it returns.
    ///
    /// # Errors
    ///
    /// If the system is terminating, or there is one at this path.
    pub fn register(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        self.inner.doors.note_work(); // It may have work that nobody has told the system of.
        self.inner.join(node)
    }

    /// Takes a node out of the tree, without stopping it. Returns false if there is none, or if the
    /// system is being drained: then the report says how the node ended.
    #[expect(clippy::must_use_candidate, reason = "it is there to be taken out")]
    pub fn remove(&self, path: &NodePath) -> bool {
        let removed = {
            let mut tree = self.inner.tree();
            if self.inner.doors.door.is_open() { tree.nodes.leave(path) } else { None }
        };
        removed.is_some() // It is dropped here, and not under the lock.
    }

    /// Ends the system when this actor ends. At once, if it has ended already.
    ///
    /// A system that is not part of a shutdown is then drained with
    /// [`Timeouts::EVENT_SOURCED`], unless a caller gives it less time.
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

    /// Returns the actors that are there, and what they have to do.
    #[must_use]
    pub fn tree(&self) -> TreeView {
        TreeView::of(self.name(), self.inner.nodes().iter().map(|node| &**node))
    }

    /// Drains one actor and its children, children first. Returns `None` if there is none at this
    /// path, or if it is being drained with the whole system.
    ///
    /// What has not ended when the time is up is killed.
    ///
    /// # Cancel safety
    ///
    /// The drain goes on if the future is dropped, and the system waits for it before it
    /// terminates.
    pub async fn stop(&self, path: &NodePath, timeout: Duration) -> Option<DrainReport> {
        let top = Arc::clone(self.inner.tree().nodes.get(path)?);
        self.inner.stop(path.clone(), Some(top), timeout).await
    }

    /// Drains the children of an actor, and not the actor itself. An actor of kameo that stops by
    /// itself can call this in its stop hook; for actors of ractor it is done.
    ///
    /// What has not ended when the time is up is killed.
    ///
    /// # Cancel safety
    ///
    /// As [`ActorSystem::stop`].
    pub async fn stop_beneath(&self, path: &NodePath, timeout: Duration) -> DrainReport {
        let stopped = self.inner.stop(path.clone(), None, timeout).await;
        stopped.unwrap_or_else(DrainReport::empty)
    }

    /// Terminates the system, by way of the coordinated shutdown if it is part of one and so
    /// configured: then all its phases run, one of which drains the actors.
    ///
    /// `timeout` is what the actors have to drain when their turn comes. It shortens no other
    /// phase, and does not lengthen the actors' own.
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
    /// Nothing is lost; but without a coordinated shutdown the drain goes on only while it is
    /// awaited.
    pub async fn terminate(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        if let Some(shutdown) = self.inner.coordinated() {
            self.inner.allow(timeout);
            let completion = shutdown.run(Reason::ActorSystemTerminate);
            self.not_inside()?;
            // If it cannot be awaited here, or has ended without us, there is nothing to wait for.
            let _ = completion.await;
        }
        self.shutdown(timeout).await
    }

    /// Drains all actors: those below `/user`, then those below `/system`. Every call, also during
    /// the drain, awaits the same result; a call with less time leaves less for all.
    ///
    /// This does not wait for a coordinated shutdown; but if the system is part of one, and so
    /// configured, that runs when the actors have ended.
    ///
    /// # Errors
    ///
    /// If one of the system's own actors calls it.
    ///
    /// # Cancel safety
    ///
    /// The drain goes on while it is awaited, and when it is awaited again.
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
        self.inner.begin_drain();
        self.not_inside()?;
        Ok(self.inner.ending().await)
    }

    /// Resolves when the system has terminated, however that began; until then it drives a drain
    /// that has begun.
    pub async fn terminated(&self) -> Arc<DrainReport> {
        let mut stages = self.inner.stage.subscribe();
        // Its sender is held by us.
        let _ = stages.wait_for(|stage| *stage > SystemStage::Running).await;
        self.inner.ending().await
    }

    /// Resolves with true when no actor below `/user` has anything to do, or with false at the
    /// deadline.
    ///
    /// Nothing outside should be sending meanwhile: an actor that is quiet now may be sent a message
    /// in the next moment. An actor that awaits a timer in a handler is busy; one whose timer will
    /// send it a message is not.
    pub async fn await_quiescence(&self, deadline: Deadline) -> bool {
        let mut found = Found::new();
        let nodes = || self.inner.tree().nodes.beneath(&NodePath::user()).nodes;
        let quiet = until_quiet(nodes, &mut found);
        tokio::time::timeout_at(deadline.instant(), quiet).await.is_ok()
    }

    /// Returns how many messages were refused, or accepted and never processed, as far as that can
    /// be seen.
    #[must_use]
    pub fn dead_letter_count(&self) -> u64 {
        self.inner.letters.count()
    }

    /// Returns the latest of them, at most a thousand, the oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.inner.letters.latest()
    }

    /// Counts a message that a node of your own did not process. For those of kameo and ractor
    /// this is done.
    pub fn add_dead_letter(&self, letter: &DeadLetter) {
        self.inner.letters.add(letter, 1);
    }

    /// Subscribes to each dead letter from now on.
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

    fn not_inside(&self) -> Result<(), TerminateError> {
        match Record::current(|record| record.is_of(&self.inner)) {
            Some(true) => Err(TerminateError::InsideActor),
            Some(false) | None => Ok(()),
        }
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
    fn new(name: Arc<str>, shutdown: Option<WeakShutdown>) -> Self {
        Self {
            name,
            tree: Mutex::default(),
            doors: Arc::default(),
            letters: Letters::default(),
            countdown: Countdown::new(),
            allowed: Mutex::default(),
            grace: Timeouts::GRACE,
            stage: watch::Sender::new(SystemStage::Running),
            shutdown,
            ending: OnceLock::new(),
            stops: TaskTracker::new(),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        let path = node.path().clone();
        // Work that was accepted may need another actor. It may have it below one that is there.
        let may_join_a_drain = path.depth() > NodePath::user().depth() + 1 && is_inside();
        let mut tree = self.tree();
        let door = &self.doors.door;
        if door.is_closed() || (!door.is_open() && !may_join_a_drain) {
            drop(tree);
            let error = SpawnError::Terminating { path, system: Arc::clone(&self.name) };
            // A body that gets this error late in start-up has not failed.
            if let Some(shutdown) = self.shutdown.as_ref().and_then(WeakShutdown::upgrade) {
                shutdown.note_refusal(&error);
            }
            return Err(error);
        }
        let is_sealed = |above: &&NodePath| path == **above || path.is_beneath(above);
        if let Some(above) = tree.sealed.iter().find(is_sealed).cloned() {
            return Err(SpawnError::ParentStopped { path, above });
        }
        if tree.nodes.get(&path).is_some() {
            return Err(SpawnError::NameTaken { path });
        }
        tree.nodes.join(path, node);
        Ok(())
    }

    /// An actor has ended.
    pub(crate) fn left(self: &Arc<Self>, record: &Record) {
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

    /// Returns the shutdown that the end of this system is to run.
    fn coordinated(&self) -> Option<Shutdown> {
        let shutdown = self.shutdown.as_ref()?.upgrade()?;
        shutdown.runs_by_actor_system_terminate().then_some(shutdown)
    }

    fn guardian_ended(self: &Arc<Self>) {
        self.begin_drain();
        if let Some(shutdown) = self.coordinated() {
            drop(shutdown.run(Reason::ActorSystemTerminate));
            return;
        }
        // Nobody else may be there to drive the drain.
        self.countdown.shorten(Deadline::after(Timeouts::EVENT_SOURCED));
        if let Ok(runtime) = Handle::try_current() {
            let system = Arc::clone(self);
            #[expect(clippy::let_underscore_future, reason = "it ends with the system's drain")]
            let _ = runtime.spawn(async move { system.ending().await });
        }
    }

    /// Remembers the least time that the actors may have from when their turn comes.
    fn allow(&self, timeout: Duration) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        *allowed = Some(allowed.map_or(timeout, |before| before.min(timeout)));
    }

    /// From now on only actors that are being drained may send and spawn.
    fn begin_drain(&self) {
        {
            let _tree = self.tree();
            self.doors.door.begin_drain();
        }
        self.stage.send_if_modified(|stage| {
            let was_running = *stage == SystemStage::Running;
            *stage = (*stage).max(SystemStage::Terminating);
            was_running
        });
    }

    /// The task in the phase `actor-system-terminate` of the shutdown.
    async fn last_phase(self: &Arc<Self>, cx: &TaskCx) -> Result<(), String> {
        let shutdown = self.shutdown.as_ref().and_then(WeakShutdown::upgrade);
        let policy = shutdown.map(|shutdown| shutdown.policy(cx.reason()));
        if policy.is_some_and(|policy| !policy.terminate_actor_system) {
            return Ok(());
        }
        // A killed actor has its grace within our time.
        let left = cx.remaining();
        let timeout = left.saturating_sub(self.grace + Timeouts::SPARE).max(left / 2);
        let allowed = *self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = allowed.map_or(timeout, |allowed| allowed.min(timeout));
        self.countdown.shorten(Deadline::after(timeout));
        self.begin_drain();
        let draining = self.ending();
        let report = tokio::select! {
            biased;
            report = draining.clone() => report,
            () = cx.cancelled() => {
                self.countdown.shorten(Deadline::after(Duration::ZERO));
                draining.await
            }
        };
        if report.is_clean() { Ok(()) } else { Err(report.to_string()) }
    }

    /// Returns the drain of the whole system, which all callers share.
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
        self.begin_drain();
        let setting = self.setting(&self.countdown);
        if !self.doors.has_worked() {
            // Actors that were just sent something get to run, and are then known to have worked.
            tokio::task::yield_now().await;
        }
        let mut found = Found::new();
        self.settle(&setting, || self.all(), &mut found).await;
        let user = self.take_out(&NodePath::user()).found(&found).drain(&setting).await;
        let own = self.take_out(&NodePath::system()).found(&found).drain(&setting).await;
        self.stops.close();
        tokio::select! {
            () = self.stops.wait() => {}
            () = self.countdown.passed(self.grace) => {}
        }
        let took = setting.began.elapsed();
        let report = DrainReport { took, ..DrainReport::merged([user, own]) };
        adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
            let (system, report) = (self.name.to_string(), report.to_string());
            move || tracing::debug!(system, report, "actor system terminated")
        });
        self.stage.send_replace(SystemStage::Terminated);
        report
    }

    fn setting<'a>(&'a self, countdown: &'a Countdown) -> Setting<'a> {
        let (letters, letters_before) = (&self.letters, self.letters.count());
        Setting { countdown, grace: self.grace, began: Instant::now(), letters, letters_before }
    }

    /// Waits until none of these has anything to do, as long as there is time for that. If nothing
    /// was ever sent in this system, there is nothing to wait for.
    async fn settle(
        &self,
        setting: &Setting<'_>,
        nodes: impl Fn() -> Vec<Arc<dyn Node>>,
        found: &mut Found,
    ) {
        if self.doors.has_worked() {
            tokio::select! {
                biased;
                () = until_quiet(nodes, found) => {}
                () = setting.countdown.last_call(setting.began) => {}
            }
        }
    }

    /// Drains the node at this path, if it is given, and its children, in a task of its own: a drain
    /// that is dropped half-way would leave parents without their children, or children without
    /// their parent.
    async fn stop(
        self: &Arc<Self>,
        path: NodePath,
        top: Option<Arc<dyn Node>>,
        timeout: Duration,
    ) -> Option<DrainReport> {
        let system = Arc::clone(self);
        let deadline = Deadline::after(timeout);
        let stopped = self.stops.spawn(async move {
            system.drain_subtree(&path, top, &Countdown::until(deadline)).await
        });
        stopped.await.ok()
    }

    async fn drain_subtree(
        &self,
        path: &NodePath,
        top: Option<Arc<dyn Node>>,
        countdown: &Countdown,
    ) -> DrainReport {
        let setting = self.setting(countdown);
        let mut group = self.tree().nodes.beneath(path);
        let nodes = || {
            let beneath = self.tree().nodes.beneath(path).nodes;
            let nodes: Vec<_> = top.iter().cloned().chain(beneath).collect();
            for node in &nodes {
                caught(|| node.begin_drain());
            }
            nodes
        };
        drop(nodes());
        let mut found = Found::new();
        self.settle(&setting, nodes, &mut found).await;
        let _seal = Seal::new(self, path);
        // Those that have ended meanwhile are in the first list only, those that were spawned in
        // the second.
        group.add_missing(self.tree().nodes.beneath(path));
        let members = Members::from(gather(path, top, group));
        members.found(&found).drain(&setting).await
    }

    /// Returns all that are in the tree, in the order in which they joined.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Node>> {
        self.tree().nodes.all()
    }

    /// Returns all that have not ended, by path.
    fn nodes(&self) -> Vec<Arc<dyn Node>> {
        let mut nodes: Vec<Arc<dyn Node>> = {
            let tree = self.tree();
            tree.nodes.by_path().chain(&*tree.draining).map(Arc::clone).collect()
        };
        nodes.retain(|node| node.has_terminated().is_none());
        nodes
    }

    /// Takes all below this path out of the tree: they are drained with the system. Nothing can join
    /// them.
    fn take_out(&self, path: &NodePath) -> Members {
        let taken = {
            let mut tree = self.tree();
            self.doors.door.close();
            tree.nodes.take_out(path)
        };
        let members = Members::from(gather(path, None, taken));
        let before = std::mem::replace(&mut self.tree().draining, members.nodes());
        drop(before); // Not under the lock.
        members
    }

    /// Returns what an on-call engineer wants to know.
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

/// While this is alive nothing joins at or below a path.
struct Seal<'a> {
    system: &'a Inner,
    path: &'a NodePath,
}

impl<'a> Seal<'a> {
    fn new(system: &'a Inner, path: &'a NodePath) -> Self {
        system.tree().sealed.push(path.clone());
        Self { system, path }
    }
}

impl Drop for Seal<'_> {
    fn drop(&mut self) {
        let mut tree = self.system.tree();
        if let Some(at) = tree.sealed.iter().position(|path| path == self.path) {
            tree.sealed.swap_remove(at);
        }
    }
}
