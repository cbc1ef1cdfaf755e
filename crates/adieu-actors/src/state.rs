//! The state that all handles of an actor system and all its actors share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use adieu_core::adapter::lock;
use adieu_core::{Reason, Shutdown, WeakShutdown, adapter};
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::SystemAdmission;
use crate::countdown::Countdown;
use crate::dead_letters::DeadLetters;
use crate::group::{Group, Member, Unfinished};
use crate::node::Node;
use crate::path::NodePath;
use crate::quiet::Activity;
use crate::refusals::refusals;
use crate::report::DrainReport;
use crate::spawn_error::SpawnError;
use crate::timeouts::Timeouts;
use crate::tree::{Removed, Tree};

/// The state of a system.
///
/// Actors hold it weakly. The handles and, if the system is part of a shutdown, the task in the
/// phase `actor-system-terminate` own it.
pub(crate) struct SystemState {
    pub(crate) name: Arc<str>,
    tree: Mutex<Tree>,
    /// Changed under the lock of the tree.
    pub(crate) admission: Arc<SystemAdmission>,
    /// Whether a drain of this system with others was announced: it is about to begin.
    is_announced: AtomicBool,
    pub(crate) dead_letters: DeadLetters,
    /// Whether the task in the phase `actor-system-terminate` has reported how the actors ended.
    is_reported: AtomicBool,
    pub(crate) countdown: Countdown,
    /// The shortest timeout that callers of `terminate` gave. It starts when the phase
    /// `actor-system-terminate` does.
    drain_timeout: Mutex<Option<Duration>>,
    pub(crate) grace: Duration,
    pub(crate) stage: watch::Sender<SystemStage>,
    shutdown: Option<WeakShutdown>,
    /// Cancelled when the end of the system begins: with the shutdown that it is part of, or with
    /// the drain of the worker thread that it is part of. Not set if it is part of neither.
    end: Arc<OnceLock<CancellationToken>>,
    /// The systems and worker threads of the same shutdown.
    membership: OnceLock<Membership>,
    /// The drain of the whole system, which all callers await.
    pub(crate) drain: OnceLock<Shared<BoxFuture<'static, Arc<DrainReport>>>>,
    /// Drains of single actors and their children. They continue if their caller is dropped.
    pub(crate) stops: TaskTracker,
}

/// How a system belongs to the group of its shutdown.
struct Membership {
    group: Arc<Group>,
    /// Dropped when the actors of the system have ended.
    unfinished: Mutex<Option<Unfinished>>,
}

/// The stage of a system. Stages only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SystemStage {
    /// Actors can be spawned.
    Running,
    /// The system is being drained, or is about to be.
    Terminating,
    /// Every actor has ended or was abandoned.
    Terminated,
}

/// The properties of a parent that a spawn below it checks.
pub(crate) trait Parent {
    fn path(&self) -> &NodePath;
    fn may_have_children(&self) -> bool;
    fn is_draining(&self) -> bool;
}

// === impl SystemState ===

impl SystemState {
    pub(crate) fn new(name: Arc<str>, shutdown: Option<WeakShutdown>) -> Self {
        Self {
            name,
            tree: Mutex::default(),
            admission: Arc::default(),
            is_announced: AtomicBool::new(false),
            dead_letters: DeadLetters::default(),
            is_reported: AtomicBool::new(false),
            countdown: Countdown::new(),
            drain_timeout: Mutex::default(),
            grace: Timeouts::GRACE,
            stage: watch::Sender::new(SystemStage::Running),
            shutdown,
            end: Arc::default(),
            membership: OnceLock::new(),
            drain: OnceLock::new(),
            stops: TaskTracker::new(),
        }
    }

    /// Sets the token that is cancelled when the end of the system begins.
    pub(crate) fn ending_with(mut self, end: Arc<OnceLock<CancellationToken>>) -> Self {
        self.end = end;
        self
    }

    /// Makes the system a member of the group of its shutdown, and returns the group.
    pub(crate) fn join(self: &Arc<Self>, shutdown: &Shutdown) -> Arc<Group> {
        let _ = self.end.set(shutdown.token());
        let group = adapter::extension::<Group>(shutdown);
        let member: Weak<Self> = Arc::downgrade(self);
        let unfinished = Mutex::new(Some(group.join(member)));
        let _ = self.membership.set(Membership { group: Arc::clone(&group), unfinished });
        group
    }

    /// Returns the systems and worker threads of the same shutdown.
    pub(crate) fn group(&self) -> Option<&Arc<Group>> {
        self.membership.get().map(|membership| &membership.group)
    }

    /// Notes that all actors have ended, or that the shutdown does not drain them.
    pub(crate) fn leave_group(&self) {
        if let Some(Membership { unfinished, .. }) = self.membership.get() {
            drop(lock(unfinished).take());
        }
    }

    pub(crate) fn mark_reported(&self) {
        self.is_reported.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported.load(Ordering::SeqCst)
    }

    /// Returns whether the end of the system has begun. From then on the report contains its dead
    /// letters.
    pub(crate) fn is_at_end(&self) -> bool {
        let is_over = self.end.get().is_some_and(CancellationToken::is_cancelled);
        is_over || !self.admission.state.is_open()
    }

    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    /// Adds a node to the tree, below an actor if one is given. `may_join_drain` permits that during a
    /// drain, until no actor has work left.
    pub(crate) fn add(
        &self,
        node: Arc<dyn Node>,
        parent: Option<&dyn Parent>,
        may_join_drain: bool,
    ) -> Result<(), SpawnError> {
        let path = node.path().clone();
        let mut tree = self.tree();
        let admission = &self.admission.state;
        if admission.is_closed() || (!admission.is_open() && !may_join_drain) {
            drop(tree);
            let error = SpawnError::Terminating { path, system: Arc::clone(&self.name) };
            self.note_refusal(&error);
            return Err(error);
        }
        // Under the lock: a parent that has ended was removed, and its children were stopped, before
        // or will be after this.
        let may_join = |parent: &dyn Parent| {
            parent.may_have_children()
                && tree.is_present(parent.path())
                && (may_join_drain || !parent.is_draining())
        };
        if let Some(parent) = parent
            && !may_join(parent)
        {
            let error = SpawnError::ParentStopped { path, above: parent.path().clone() };
            drop(tree);
            return Err(self.noted(error));
        }
        let added = tree.add(path, node);
        drop(tree);
        added.map_err(|error| self.noted(error))
    }

    /// Notes the error if the drain may be its cause: it stops parents, and kills what starts.
    pub(crate) fn noted(&self, error: SpawnError) -> SpawnError {
        if !self.admission.state.is_open() {
            self.note_refusal(&error);
        }
        error
    }

    /// Records an error that means only that the system is terminating. If the body of the application
    /// returns this error late in start-up, the body has not failed.
    pub(crate) fn note_refusal(&self, error: &dyn std::fmt::Display) {
        if let Some(shutdown) = self.shutdown() {
            adapter::note_refusal(&shutdown, error);
        }
    }

    /// Removes a node that has ended. `path` must be the node's own value; see
    /// [`Tree::remove_ended`].
    pub(crate) fn remove_ended(&self, path: &NodePath) {
        let Removed { node, on_guardian_end } = self.tree().remove_ended(path);
        drop(node); // After the lock was released.
        if let Some(on_guardian_end) = on_guardian_end {
            on_guardian_end();
        }
    }

    /// Returns all nodes of the tree, in the order in which they joined.
    pub(crate) fn nodes(&self) -> Vec<Arc<dyn Node>> {
        self.tree().in_join_order()
    }

    /// Returns all nodes that have not ended, by path.
    pub(crate) fn living(&self) -> Vec<Arc<dyn Node>> {
        let mut nodes = self.tree().with_draining();
        nodes.retain(|node| node.has_terminated().is_none());
        nodes
    }

    /// Returns the shutdown that this system is part of.
    pub(crate) fn shutdown(&self) -> Option<Shutdown> {
        self.shutdown.as_ref().and_then(WeakShutdown::upgrade)
    }

    /// Returns the shutdown that has to run when this system terminates.
    pub(crate) fn shutdown_to_run(&self) -> Option<Shutdown> {
        self.shutdown().filter(Shutdown::runs_by_actor_system_terminate)
    }

    /// Limits the time of the drain in the phase `actor-system-terminate`. The shortest limit holds.
    pub(crate) fn limit_drain(&self, timeout: Duration) {
        let mut limit = lock(&self.drain_timeout);
        *limit = Some(limit.map_or(timeout, |before| before.min(timeout)));
    }

    pub(crate) fn drain_timeout(&self) -> Option<Duration> {
        *lock(&self.drain_timeout)
    }

    /// Returns whether a drain of the whole system, or of a part that contains this path, was announced.
    pub(crate) fn is_drain_announced(&self, path: &NodePath) -> bool {
        self.is_announced.load(Ordering::SeqCst) || self.tree().is_being_stopped(path)
    }

    /// Refuses messages and spawns from now on, except from actors that are being drained.
    pub(crate) fn begin_drain(&self) {
        {
            let _tree = self.tree();
            self.admission.state.begin_drain();
        }
        self.stage.send_if_modified(|stage| {
            let was_running = *stage == SystemStage::Running;
            *stage = (*stage).max(SystemStage::Terminating);
            was_running
        });
    }
}

impl Member for SystemState {
    fn is_drained_for(&self, reason: &Reason) -> bool {
        self.shutdown().is_none_or(|shutdown| shutdown.policy(reason).terminate_actor_system)
    }

    fn announce_drain(&self) {
        // From here on a send may fail only because the shutdown drains the actors.
        for refusal in refusals() {
            self.note_refusal(&refusal);
        }
        self.is_announced.store(true, Ordering::SeqCst);
    }

    fn begin_drain(&self) {
        Self::begin_drain(self);
    }

    fn add_to(&self, activity: &mut Activity) {
        activity.nodes.append(&mut self.nodes());
    }

    fn has_worked(&self) -> bool {
        self.admission.has_worked()
    }

    fn take_unreported(&self) -> Option<String> {
        let count = self.dead_letters.take_unreported();
        (count > 0)
            .then(|| format!("actor system {}: {count} dead letters after its report", self.name))
    }
}
