//! What all links of a node share.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accepted::Inbound;
use super::hello::Identity;
use super::lane::Lane;
use super::limits::Limits;
use super::security::Security;
use super::tls::Tls;
use super::wire::Executor;
use crate::records::NodeId;
use crate::store::Revision;
use crate::transport::{Peer, Receiver};

/// What all links of a node share.
pub(super) struct Core {
    pub(super) identity: Identity,
    pub(super) security: Security,
    pub(super) tls: Option<Tls>,
    pub(super) limits: Limits,
    started: RwLock<Option<Started>>,
    /// The links that this node has dialled, by peer.
    pub(super) lanes: RwLock<HashMap<Peer, Arc<Lane>>>,
    /// The links that other nodes have dialled: one for each node.
    accepted: Mutex<HashMap<NodeId, Arc<Inbound>>>,
    pub(super) last_link: AtomicU64,
    /// Every task of the links.
    pub(super) tasks: TaskTracker,
    /// No new links; those that there are end in order.
    pub(super) closing: CancellationToken,
    /// Connections are dropped.
    pub(super) killed: CancellationToken,
}

/// The facts that are known once the node has joined.
#[derive(Clone)]
pub(super) struct Started {
    pub(super) incarnation: Revision,
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) runtime: Handle,
}

// === impl Core ===

impl Core {
    pub(super) fn new(
        identity: Identity,
        security: Security,
        tls: Option<Tls>,
        limits: Limits,
    ) -> Self {
        Self {
            identity,
            security,
            tls,
            limits,
            started: RwLock::new(None),
            lanes: RwLock::new(HashMap::new()),
            accepted: Mutex::new(HashMap::new()),
            last_link: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            killed: CancellationToken::new(),
        }
    }

    pub(super) fn started(&self) -> Option<Started> {
        self.started.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the facts that are known once the node has joined; `None` when the links are closed, so that the
    /// receiver is dropped.
    pub(super) fn set_started(&self, started: Option<Started>) {
        *self.started.write().unwrap_or_else(PoisonError::into_inner) = started;
    }

    pub(super) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn_on(task, runtime));
    }

    pub(super) fn executor(&self, runtime: Handle) -> Executor {
        Executor { tasks: self.tasks.clone(), runtime }
    }

    pub(super) fn next_link(&self) -> u64 {
        self.last_link.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn accepted(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<Inbound>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a link the only one of its node. An older one is stopped: when this returns, nothing of
    /// it will be received any longer.
    pub(super) fn admit(&self, link: &Arc<Inbound>) -> Result<(), String> {
        let mut accepted = self.accepted();
        if self.closing.is_cancelled() {
            return Err("this node is closing its links".to_owned());
        }
        if let Some(other) = accepted.get(&link.peer.id) {
            let (ours, theirs) = (&other.peer.incarnation, &link.peer.incarnation);
            if (ours, other.link) >= (theirs, link.link) {
                let id = &link.peer.id;
                return Err(format!(
                    "node {id} has opened a newer link or has a newer incarnation"
                ));
            }
            other.stop();
        }
        accepted.insert(link.peer.id.clone(), Arc::clone(link));
        Ok(())
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&self, link: &Arc<Inbound>) {
        let mut accepted = self.accepted();
        if accepted.get(&link.peer.id).is_some_and(|current| Arc::ptr_eq(current, link)) {
            accepted.remove(&link.peer.id);
        }
    }

    /// Stops reading from all peers.
    pub(super) fn stop_reading(&self) {
        for link in self.accepted().values() {
            link.stop();
        }
    }

    /// Ends a lane on which nothing is on its way. Returns whether it was ended.
    pub(super) fn retire(&self, lane: &Arc<Lane>) -> bool {
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let is_retired = lane.retire();
        if is_retired && lanes.get(&lane.peer).is_some_and(|current| Arc::ptr_eq(current, lane)) {
            lanes.remove(&lane.peer);
        }
        is_retired
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("identity", &self.identity).finish_non_exhaustive()
    }
}
