//! The state that all regions of this node share: its identity, its transport to other nodes, and the
//! limits on its entities.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::starts::Starts;
use super::timers::Timers;
use crate::records::{NodeId, ShardId};
use crate::standing::Standing;
use crate::store::Revision;
use crate::time::Instant;
use crate::transport::{MessageId, Peer, Transport};
use crate::view::View;

/// This node, as its regions see it.
pub(crate) struct Here {
    pub(crate) id: NodeId,
    /// Zero before this node has a record.
    incarnation: AtomicU64,
    sequence: AtomicU64,
    /// Whether this node has begun to join. Before that, nothing keeps the deadlines of its messages.
    has_begun: AtomicBool,
    /// Set when this node has joined.
    joined: OnceLock<Joined>,
    pub(crate) transport: OnceLock<Arc<dyn Transport>>,
    /// The addresses of the nodes in the table.
    peers: RwLock<BTreeMap<NodeId, Known>>,
    pub(crate) starts: Starts,
    pub(crate) timers: Timers,
    /// The tasks of entities.
    pub(crate) tasks: TaskTracker,
    /// A shard is drained.
    pub(crate) drained: Notify,
    /// Logs an entity that failed: its region, its id and the error.
    pub(crate) failed: Failed,
    /// Logs a function of `on_open` that panicked.
    pub(crate) open_failed: OpenFailed,
}

type Failed = Box<dyn Fn(&str, &str, String) + Send + Sync>;
type OpenFailed = Box<dyn Fn(&ShardId, String) + Send + Sync>;

/// The incarnation and the address of a node.
type Known = (Revision, Option<Arc<str>>);

struct Joined {
    standing: Arc<Standing>,
    runtime: Handle,
}

// === impl Here ===

impl Here {
    pub(crate) fn new(
        id: NodeId,
        starts: Starts,
        failed: impl Fn(&str, &str, String) + Send + Sync + 'static,
        open_failed: impl Fn(&ShardId, String) + Send + Sync + 'static,
    ) -> Self {
        Self {
            id,
            incarnation: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            joined: OnceLock::new(),
            transport: OnceLock::new(),
            peers: RwLock::default(),
            starts,
            timers: Timers::default(),
            tasks: TaskTracker::new(),
            drained: Notify::new(),
            failed: Box::new(failed),
            open_failed: Box::new(open_failed),
        }
    }

    /// This node begins to join.
    pub(crate) fn begin(&self) {
        // Relaxed: a message that is sent at the same instant may be sent before or after it.
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Returns whether this node has begun to join.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// This node has a session, and runs on this runtime.
    pub(crate) fn join(&self, standing: Arc<Standing>, runtime: Handle) {
        let _ = self.joined.set(Joined { standing, runtime });
    }

    /// Returns whether this node has a session, or had one.
    #[cfg(feature = "http")]
    pub(crate) fn has_joined(&self) -> bool {
        self.joined.get().is_some()
    }

    /// Updates the known peers from a view.
    pub(crate) fn see(&self, incarnation: Revision, view: &View) {
        // Relaxed: messages read it after they have seen a grant, under the lock of their shard.
        self.incarnation.store(incarnation.get(), Ordering::Relaxed);
        let address = |address: &Option<String>| address.as_deref().map(Arc::from);
        let peers = view.nodes.iter();
        let peers =
            peers.map(|(id, node)| (id.clone(), (node.created, address(&node.value.address))));
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = peers.collect();
    }

    /// Returns whether this incarnation of a node is in the table.
    pub(crate) fn knows(&self, peer: &Peer) -> bool {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&peer.id).is_some_and(|(incarnation, _)| *incarnation == peer.incarnation)
    }

    /// Returns the address of this incarnation of a node.
    pub(crate) fn address(&self, peer: &Peer) -> Option<Arc<str>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let (incarnation, address) = peers.get(&peer.id)?;
        address.clone().filter(|_| *incarnation == peer.incarnation)
    }

    /// Returns the number of the next message. Call it under the lock of the message's shard, so that
    /// numbers of one shard rise.
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: the lock of the shard orders the numbers of its messages.
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a number that is higher than those of all messages so far.
    pub(crate) fn next_number(&self) -> u64 {
        // Relaxed: a message that is sent at the same instant may be counted or not.
        self.sequence.load(Ordering::Relaxed)
    }

    pub(crate) fn message_id(&self, sequence: u64) -> MessageId {
        let incarnation = Revision::new(self.incarnation.load(Ordering::Relaxed));
        MessageId { incarnation, sequence }
    }

    /// Returns whether this node may act.
    pub(crate) fn is_good(&self) -> bool {
        self.joined.get().is_some_and(|joined| joined.standing.is_good())
    }

    /// Returns whether this node may act. The caller has just read the clock.
    pub(crate) fn is_good_at(&self, now: Instant) -> bool {
        self.joined.get().is_some_and(|joined| joined.standing.is_good_at(now))
    }

    /// Spawns a task of a region. The tracker joins it. `None` before this node has joined.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<tokio::task::AbortHandle> {
        let runtime = &self.joined.get()?.runtime;
        Some(self.tasks.spawn_on(task, runtime).abort_handle())
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here").field("id", &self.id).finish_non_exhaustive()
    }
}
