//! The state that all links of a node share.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use adieu_core::adapter::log_aside;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Level;

use super::accepted::Inbound;
use super::failing::Failing;
use super::hello::Identity;
use super::lane::Lane;
use super::limits::Limits;
use super::rejections::{Cause, Rejections};
use super::security::Security;
use super::tls::Tls;
use crate::records::NodeId;
use crate::store::Revision;
use crate::time::now;
use crate::transport::{FailingLink, Peer, Receiver};

/// The state that all links of a node share.
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
    failing: Mutex<Failing>,
    rejections: Mutex<Rejections>,
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
            failing: Mutex::default(),
            rejections: Mutex::default(),
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

    fn failing(&self) -> MutexGuard<'_, Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the members that cannot be reached.
    pub(super) fn failing_links(&self) -> Vec<FailingLink> {
        let mut failing = self.failing().all(now());
        // A node that has left is not to be reached.
        let started = self.started();
        failing.retain(|link| started.as_ref().is_some_and(|it| it.receiver.knows(&link.peer)));
        failing
    }

    /// Notes that a peer has accepted a link.
    pub(super) fn link_opened(&self, peer: &Peer) {
        if self.failing().opened(peer) {
            let (cluster, peer) = (Arc::clone(&self.identity.cluster), peer.id.clone());
            log_aside(Level::INFO, || move || tracing::info!(%cluster, %peer, "link recovered"));
        }
    }

    /// Notes that a link to a peer has lasted.
    pub(super) fn link_lasted(&self, peer: &Peer) {
        self.failing().lasted(peer);
    }

    /// Notes that an attempt to reach a peer failed, or that its link ended soon.
    pub(super) fn link_failed(&self, peer: &Peer, address: &Arc<str>, why: &str) {
        let long = self.limits.long_failure;
        let failing_for = self.failing().failed(peer, address, why, long, now());
        let started = self.started();
        let is_member = || started.is_some_and(|it| it.receiver.knows(peer));
        if let Some(failing_for) = failing_for.filter(|_| is_member()) {
            let (cluster, peer) = (Arc::clone(&self.identity.cluster), peer.id.clone());
            let (address, why) = (Arc::clone(address), why.to_owned());
            log_aside(
                Level::WARN,
                || move || tracing::warn!(%cluster, %peer, %address, ?failing_for, why, "link fails"),
            );
        }
    }

    /// Logs that the connection of a caller was rejected, if that was not logged before.
    pub(super) fn rejected(&self, from: IpAddr, cause: Cause, why: &str) {
        let mut rejections = self.rejections.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(more) = rejections.note(from, cause, now()) else { return };
        drop(rejections);
        let (cluster, why) = (Arc::clone(&self.identity.cluster), why.to_owned());
        log_aside(Level::WARN, || {
            move || {
                tracing::warn!(%cluster, %from, why, not_logged_before = more, "node rejected");
            }
        });
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
