//! What is known of an actor besides what its framework knows; and which actor is at work here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::SetOnce;

use crate::letters::{DeadLetter, Undelivered};
use crate::node::Ended;
use crate::path::NodePath;
use crate::system::{ActorSystem, Inner, Place};

tokio::task_local! {
    /// The actor whose code runs here.
    static CURRENT: Arc<dyn Recorded>;
}

/// Something that has a record: an actor as a node. One allocation for both, because with very many
/// actors it is the looking up in memory that costs.
pub(crate) trait Recorded: Send + Sync {
    fn record(&self) -> &Record;
}

/// What is known of an actor besides what its framework knows.
#[derive(Debug)]
pub(crate) struct Record {
    path: NodePath,
    system: Weak<Inner>,
    /// The system is being drained. Apart from it, because to reach it costs all actors the same
    /// counter.
    is_closed: Arc<AtomicBool>,
    ended: SetOnce<Ended>,
    pub(crate) dead: AtomicU64,
}

/// Notes that the actor has ended, however that came about: it is dropped with the actor.
pub(crate) struct Last<N: Recorded> {
    node: Arc<N>,
    /// None if nobody said how: then it was killed.
    ended: Option<Ended>,
}

// === impl Record ===

impl Record {
    pub(crate) fn new(path: NodePath, system: &Arc<Inner>) -> Self {
        Self {
            path,
            system: Arc::downgrade(system),
            is_closed: Arc::clone(&system.is_closed),
            ended: SetOnce::new(),
            dead: AtomicU64::new(0),
        }
    }

    /// Looks at the actor whose code runs here, if it was spawned through a system.
    pub(crate) fn current<T>(look: impl FnOnce(&Self) -> T) -> Option<T> {
        CURRENT.try_with(|current| look(current.record())).ok()
    }

    /// The path of the actor whose code runs here.
    pub(crate) fn current_path() -> Option<NodePath> {
        Self::current(|record| record.path.clone())
    }

    pub(crate) fn path(&self) -> &NodePath {
        &self.path
    }

    pub(crate) fn system(&self) -> Option<ActorSystem> {
        self.system.upgrade().map(|inner| ActorSystem { inner })
    }

    /// The place beneath it. None if its system is gone.
    pub(crate) fn place(&self) -> Option<Place> {
        self.system().map(|system| system.place(self.path.clone()))
    }

    pub(crate) fn is_of(&self, system: &Arc<Inner>) -> bool {
        std::ptr::eq(self.system.as_ptr(), Arc::as_ptr(system))
    }

    pub(crate) async fn terminated(&self) -> Ended {
        self.ended.wait().await.clone()
    }

    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Messages that had come, and that it ended without.
    pub(crate) fn left_behind(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        count: u64,
    ) {
        self.dead.fetch_add(count, Ordering::Relaxed);
        self.dead_letter(from, message, Undelivered::LeftBehind, count);
    }

    /// A message that came too late, sent by whoever runs here.
    pub(crate) fn came_too_late(&self, message: &'static str) {
        let from = Self::current_path();
        self.dead_letter(from, Some(message), Undelivered::Stopped, 1);
    }

    fn dead_letter(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        because: Undelivered,
        count: u64,
    ) {
        if let Some(system) = self.system.upgrade() {
            let letter = DeadLetter { to: self.path.clone(), from, message, because };
            system.letters.add(&letter, count);
        }
    }
}

/// Runs `work` as the code of this actor.
pub(crate) fn within<T>(node: &Arc<impl Recorded + 'static>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Arc::clone(node) as Arc<dyn Recorded>, work)
}

// === impl Last ===

impl<N: Recorded> Last<N> {
    pub(crate) fn new(node: Arc<N>) -> Self {
        Self { node, ended: None }
    }

    #[cfg(feature = "kameo")]
    pub(crate) fn node(&self) -> &Arc<N> {
        &self.node
    }

    pub(crate) fn set(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl<N: Recorded> Drop for Last<N> {
    fn drop(&mut self) {
        let ended = self.ended.take().unwrap_or(Ended::Killed);
        let record = self.node.record();
        // Out of the tree first: who awaits its end may want to use its name again. A tree that is
        // closed is taken apart as a whole.
        if !record.is_closed.load(Ordering::Acquire)
            && let Some(system) = record.system.upgrade()
        {
            system.left(record);
        }
        let _ = record.ended.set(ended);
    }
}
