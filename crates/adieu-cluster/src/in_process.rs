//! Links between nodes of one process, for tests: in order, with delays and cuts.

mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use adieu_core::adapter::lock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::records::{NodeId, ShardId};
use crate::time::{Duration, LONGEST};
use crate::transport::{Carrier, Envelope, Full, OnEvent, Peer, Pending, Receiver, Transport};
use link::Link;

/// A network between nodes of one process, for tests. Its messages arrive in order, after a delay that
/// can be set, and links between two nodes can be cut.
///
/// ```
/// use adieu_cluster::store::Memory;
/// use adieu_cluster::{Cluster, InProcess};
/// use adieu_core::{Config, Shutdown};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, network) = (Memory::new(), InProcess::new());
/// let shutdown = Shutdown::configured(Config::for_tests())?;
/// let cluster = Cluster::new(store, "shop").in_process(&network).on(&shutdown)?;
/// # drop(cluster); Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct InProcess {
    net: Arc<Net>,
}

#[derive(Default)]
pub(crate) struct Net {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<Peer, Arc<dyn Receiver>>,
    cut: BTreeSet<(NodeId, NodeId)>,
    delay: Duration,
    /// The links that exist, to be notified of cuts.
    links: Vec<(NodeId, NodeId, CancellationToken)>,
}

/// One node in the network.
struct InProcessNode {
    net: Arc<Net>,
    joined: OnceLock<(Peer, Handle)>,
    links: Mutex<BTreeMap<Peer, Link>>,
    tasks: TaskTracker,
    close: CancellationToken,
}

// === impl InProcess ===

impl InProcess {
    /// Returns a network without delay.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long each message and each answer travels.
    pub fn delay(&self, delay: Duration) {
        self.net.state().delay = delay.min(LONGEST);
    }

    /// Cuts the links between two nodes. Messages that were read and not answered are lost;
    /// messages that were not read returns to its sender.
    pub fn cut(&self, one: &NodeId, other: &NodeId) {
        let mut state = self.net.state();
        for (from, to) in [(one, other), (other, one)] {
            state.cut.insert((from.clone(), to.clone()));
            let links = state.links.iter();
            let broken = links.filter(|(a, b, _)| a == from && b == to);
            broken.for_each(|(_, _, broken)| broken.cancel());
            state.links.retain(|(a, b, _)| (a, b) != (from, to));
        }
    }

    /// Lets two nodes reach each other again.
    pub fn mend(&self, one: &NodeId, other: &NodeId) {
        let mut state = self.net.state();
        state.cut.remove(&(one.clone(), other.clone()));
        state.cut.remove(&(other.clone(), one.clone()));
    }

    /// Returns a node that joins the network when it is in the table.
    pub(crate) fn node(&self) -> Arc<dyn Carrier> {
        Arc::new(InProcessNode {
            net: Arc::clone(&self.net),
            joined: OnceLock::new(),
            links: Mutex::default(),
            tasks: TaskTracker::new(),
            close: CancellationToken::new(),
        })
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.net.state();
        f.debug_struct("InProcess")
            .field("nodes", &state.nodes.len())
            .field("delay", &state.delay)
            .finish_non_exhaustive()
    }
}

// === impl Net ===

impl Net {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn delay(&self) -> Duration {
        self.state().delay
    }

    /// Returns the receiver of a message, if the other node can be reached.
    fn reach(&self, from: &Peer, to: &Peer) -> Result<Arc<dyn Receiver>, String> {
        let receiver = {
            let state = self.state();
            if state.cut.contains(&(from.id.clone(), to.id.clone())) {
                return Err(format!("{} cannot be reached: the link is cut", to.id));
            }
            state.nodes.get(to).cloned()
        };
        let receiver =
            receiver.ok_or_else(|| format!("{} cannot be reached: it is gone", to.id))?;
        match receiver.knows(from) {
            true => Ok(receiver),
            false => Err(format!("this node is not in the view of {}", to.id)),
        }
    }

    /// Returns a token that fires when the link breaks.
    fn watch(&self, from: &Peer, to: &Peer) -> CancellationToken {
        let broken = CancellationToken::new();
        let mut state = self.state();
        state.links.push((from.id.clone(), to.id.clone(), broken.clone()));
        broken
    }
}

// === impl InProcessNode ===

impl Transport for InProcessNode {
    fn send(
        &self,
        to: &Peer,
        _address: &str,
        envelope: Envelope,
        on_event: OnEvent,
    ) -> Result<(), Full> {
        let Some((me, runtime)) = self.joined.get().filter(|_| !self.close.is_cancelled()) else {
            return Err(Full(Box::new(envelope)));
        };
        let mut links = lock(&self.links);
        let link = links.entry(to.clone()).or_insert_with(|| {
            let (link, task) =
                Link::open(Arc::clone(&self.net), me.clone(), to.clone(), self.close.clone());
            drop(self.tasks.spawn_on(task, runtime));
            link
        });
        link.send(envelope, on_event).map_err(Full)
    }

    fn prepare<'a>(
        &'a self,
        to: &'a Peer,
        _address: &'a str,
        shard: &'a ShardId,
    ) -> Pending<'a, Result<(), String>> {
        Box::pin(async move {
            let Some((me, _)) = self.joined.get() else {
                return Err("this node has not joined".to_owned());
            };
            tokio::time::sleep(self.net.delay() * 2).await;
            self.net.reach(me, to)?.prepare(me, shard).await
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if let Some((me, _)) = self.joined.get() {
                self.net.state().nodes.remove(me);
            }
            self.close.cancel();
            lock(&self.links).clear();
            self.tasks.close();
            self.tasks.wait().await;
        })
    }
}

impl Carrier for InProcessNode {
    fn start(&self, me: &Peer, runtime: &Handle, receiver: Arc<dyn Receiver>) {
        let _ = self.joined.set((me.clone(), runtime.clone()));
        self.net.state().nodes.insert(me.clone(), receiver);
    }

    fn into_transport(self: Arc<Self>) -> Arc<dyn Transport> {
        self
    }
}

#[cfg(test)]
mod tests;
