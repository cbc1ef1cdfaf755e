//! A named root above all actors: `/user` for the application's, `/system` for internal ones.

mod spawn;
mod stop;
mod terminate;

use std::fmt;
use std::sync::{Arc, OnceLock};

use adieu_core::adapter::{WorkSource, account_for, warn_of_undrained_actors};
use adieu_core::{AddTaskError, Deadline, Phase, Shutdown, TaskSpec};
pub use spawn::{Place, Spawn};
pub use terminate::TerminateError;
use tokio_util::sync::CancellationToken;

use crate::dead_letters::{DeadLetter, DeadLetterSubscription};
use crate::path::NodePath;
use crate::quiet::{Found, until_quiet};
use crate::record::Record;
use crate::state::{SystemStage, SystemState};
use crate::view::TreeView;

/// A named root above all actors of an application.
///
/// Cheap to clone: all clones are handles of the same system. An actor that is spawned through the
/// system is drained with it, children before their parents.
#[derive(Clone)]
pub struct ActorSystem {
    pub(crate) state: Arc<SystemState>,
    /// Keeps the shutdown alive while a handle of the system exists. The state itself must not: the
    /// shutdown owns the state, through its task in the phase `actor-system-terminate`.
    _shutdown: Option<Shutdown>,
}

// === impl ActorSystem ===

impl ActorSystem {
    /// Creates a system that is not part of a shutdown.
    ///
    /// It terminates when [`terminate`](Self::terminate), [`shutdown`](Self::shutdown) or
    /// [`abort`](Self::abort) is called, or when its [guardian](Self::set_guardian) ends.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { state: Arc::new(SystemState::new(name.into(), None)), _shutdown: None }
    }

    /// Creates a system that is part of a coordinated shutdown.
    ///
    /// The phase `actor-system-terminate` terminates the system, unless `terminate-actor-system` is
    /// off for the reason. Then the actors continue to run. If they have work when the shutdown ends,
    /// the report of the shutdown contains that work, and is not clean.
    ///
    /// If the system is [terminated](Self::terminate) first, that runs the shutdown, unless
    /// `run-by-actor-system-terminate` is off.
    ///
    /// The shutdown owns the system: its actors are drained even if every handle has been dropped.
    ///
    /// All systems and [worker threads](crate::WorkerThreads) of a shutdown are drained together:
    /// while any of them has work, their actors and workers accept messages from each other.
    ///
    /// # Errors
    ///
    /// If the phase `actor-system-terminate` accepts no more tasks.
    pub fn on(shutdown: &Shutdown, name: impl Into<Arc<str>>) -> Result<Self, AddTaskError> {
        let state = Arc::new(SystemState::new(name.into(), Some(shutdown.downgrade())));
        let (drained, described) = (Arc::clone(&state), Arc::clone(&state));
        let task = TaskSpec::new(format!("terminate actor system {}", state.name))
            .describe(move || described.pending_actors());
        // Before the task is added, because the task may run at once. If it cannot be added, the system
        // leaves the group when it is dropped.
        let group = state.join(shutdown);
        shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, task, async move |cx| {
            drained.run_last_phase(&cx, &group).await
        })?;
        let [lost, remaining, using] = [(); 3].map(|()| Arc::clone(&state));
        let source = WorkSource::new(format!("actor system {}", state.name))
            .lost(move || lost.take_lost())
            .remaining(move || remaining.remaining())
            .using_resources(move || using.undrained_work());
        account_for(shutdown, source);
        warn_of_undrained_actors(shutdown);
        Ok(Self { state, _shutdown: Some(shutdown.clone()) })
    }

    /// Creates the system of a worker thread, whose end begins when this token is cancelled.
    pub(crate) fn of_worker(
        name: impl Into<Arc<str>>,
        end: &Arc<OnceLock<CancellationToken>>,
    ) -> Self {
        let state = SystemState::new(name.into(), None).ending_with(Arc::clone(end));
        Self { state: Arc::new(state), _shutdown: None }
    }

    /// Returns the system of an actor, if it still exists.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let state = record.system()?;
        let shutdown = state.shutdown();
        Some(Self { state, _shutdown: shutdown })
    }

    /// Returns the name of the system.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.state.name
    }

    /// Returns the stage of the system.
    #[must_use]
    pub fn stage(&self) -> SystemStage {
        *self.state.stage.borrow()
    }

    /// Removes a node from the tree, without stopping it.
    ///
    /// Returns false if there is no node at this path, or if the system is being drained. In the
    /// second case the node is part of the report.
    #[expect(clippy::must_use_candidate, reason = "the node is removed either way")]
    pub fn remove(&self, path: &NodePath) -> bool {
        let removed = {
            let mut tree = self.state.tree();
            if self.state.admission.state.is_open() { tree.remove(path) } else { None }
        };
        removed.is_some() // The node is dropped here, after the lock was released.
    }

    /// Returns the actors of the system and their queue lengths.
    #[must_use]
    pub fn tree(&self) -> TreeView {
        TreeView::of(self.name(), self.state.living().iter().map(|node| &**node))
    }

    /// Waits until no actor below `/user` has work. Returns false if the deadline passes first.
    ///
    /// While this waits, no code outside the system should send messages: an idle actor may be sent
    /// a message at any time. An actor that awaits a timer in a handler has work. An actor whose
    /// timer will send it a message has none.
    pub async fn await_quiescence(&self, deadline: Deadline) -> bool {
        let mut found = Found::new();
        let nodes = || self.state.tree().below(&NodePath::user()).nodes.into();
        let quiet = until_quiet(nodes, &mut found);
        tokio::time::timeout_at(deadline.instant(), quiet).await.is_ok()
    }

    /// Returns how many messages were refused, or accepted and never processed, as far as that is
    /// known.
    #[must_use]
    pub fn dead_letter_count(&self) -> u64 {
        self.state.dead_letters.count()
    }

    /// Returns the latest dead letters, at most a thousand, the oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.state.dead_letters.latest()
    }

    /// Counts a message that a node of your own did not process.
    ///
    /// Messages to actors of kameo and ractor and to plain tasks are counted automatically.
    pub fn add_dead_letter(&self, letter: &DeadLetter) {
        self.state.dead_letters.add(letter, 1, self.state.is_at_end());
    }

    /// Subscribes to all dead letters from now on.
    #[must_use]
    pub fn subscribe_to_dead_letters(&self) -> DeadLetterSubscription {
        self.state.dead_letters.subscribe()
    }
}

impl fmt::Debug for ActorSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ActorSystem");
        debug.field("name", self.name()).field("stage", &self.stage()).finish_non_exhaustive()
    }
}
