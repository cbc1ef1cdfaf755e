//! The state that the handles, the driver and the tasks of the phases share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use adieu_core::adapter::lock;
use adieu_core::{CheckHandle, WeakShutdown, adapter};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commits::Commits;
use crate::counters::Counters;
use crate::entity::Here;
use crate::member::{Goal, Incompatible, Loss, Stage};
use crate::node::Node;
use crate::records::{Drain, Keys, NodeId, NodeRecord, RegionKind};
use crate::regions::RegionMap;
use crate::settings::Settings;
use crate::singleton::Work;
use crate::standing::Standing;
use crate::store::{Store, StoreError};
use crate::time::{Duration, Instant, now};
use crate::transport::Carrier;
use crate::troubles::Troubles;
use crate::view::View;
use crate::waiting;

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: Arc<str>,
    pub(crate) keys: Keys,
    pub(crate) commits: Commits,
    pub(crate) id: NodeId,
    pub(crate) record: NodeRecord,
    pub(crate) settings: Settings,
    pub(crate) join_deadline: Duration,
    pub(crate) shutdown: WeakShutdown,
    /// The process is ready only while this node is a member.
    pub(crate) check: CheckHandle,
    /// The runtime of the driver, on which the clients of stores have their connections.
    pub(crate) runtime: OnceLock<Handle>,
    pub(crate) counters: Counters,
    pub(crate) troubles: Troubles,
    /// The declared singletons, by name.
    pub(crate) singletons: Mutex<BTreeMap<Arc<str>, Work>>,
    /// The declared regions, and singletons that receive messages.
    pub(crate) regions: Arc<RegionMap>,
    /// This node, as its regions see it.
    pub(crate) here: Arc<Here>,
    /// Carries messages between nodes, if this node has links.
    pub(crate) carrier: Option<Arc<dyn Carrier>>,
    pub(crate) drain_times: Mutex<DrainTimes>,
    /// The machine. Locked for one step at a time, never across an await.
    pub(crate) node: Mutex<Option<Node>>,
    pub(crate) standing: OnceLock<Arc<Standing>>,
    pub(crate) progress: watch::Sender<Progress>,
    /// The goal of this node.
    pub(crate) goal: watch::Sender<Goal>,
    /// Singletons that have not ended are dropped.
    pub(crate) kill: CancellationToken,
    /// The driver ends.
    pub(crate) close: CancellationToken,
    /// The driver's task.
    pub(crate) tasks: TaskTracker,
}

/// The stage of this node, for tasks that wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// `None` before the node has begun to join.
    pub(crate) stage: Option<Stage>,
    /// The beginning of this stage.
    pub(crate) since: Option<Instant>,
    /// The condition for the next stage.
    pub(crate) waiting_for: Option<String>,
    pub(crate) drain: Drain,
    /// The shards of regions and the singletons that this node owns.
    pub(crate) regions: usize,
    pub(crate) singletons: Vec<Arc<str>>,
    pub(crate) leader: Option<NodeId>,
    pub(crate) loss: Option<Loss>,
    pub(crate) failure: Option<Failure>,
    /// The driver has ended.
    pub(crate) is_over: bool,
}

/// The deadlines of the shards of this node, once its shutdown has reached them.
#[derive(Debug, Default)]
pub(crate) struct DrainTimes {
    pub(crate) regions: Option<DrainTime>,
    pub(crate) singletons: Option<DrainTime>,
    /// How many shards of each region this node owned when the drain began.
    pub(crate) owned: BTreeMap<Arc<str>, usize>,
    /// The entities that were killed, in words.
    pub(crate) killed: Vec<String>,
}

/// The deadlines of the drain of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainTime {
    pub(crate) begun: Instant,
    /// The instant until which it admits messages that entities send.
    pub(crate) nested_until: Instant,
    /// When its entities are killed.
    pub(crate) kill_at: Instant,
}

/// Why a node cannot join.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Incompatible(Incompatible),
    Store(StoreError),
}

// === impl Shared ===

impl Shared {
    pub(crate) fn node(&self) -> MutexGuard<'_, Option<Node>> {
        lock(&self.node)
    }

    pub(crate) fn singletons(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Work>> {
        lock(&self.singletons)
    }

    /// Logs as the shutdown does, in the order of its lines.
    pub(crate) fn log(&self, emit: impl FnOnce() + Send + 'static) {
        match self.shutdown.upgrade() {
            Some(shutdown) => adapter::log(&shutdown, emit),
            None => adapter::log_aside(tracing::Level::WARN, || emit),
        }
    }

    /// Returns whether this node cannot reach the entities of other nodes, because it was built without
    /// `listen`.
    pub(crate) fn lacks_links(&self, view: &View) -> bool {
        let has_others = view.nodes.keys().any(|id| *id != self.id);
        self.carrier.is_none() && has_others && !self.regions.all().is_empty()
    }

    /// Returns whether the shutdown has begun, or can no longer begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.shutdown.upgrade().is_none_or(|shutdown| shutdown.reason().is_some())
    }

    /// Returns the stage and the loss of this node by the clock. The driver may be late: it cannot run
    /// while all workers are blocked.
    pub(crate) fn stage_of(&self, node: &Node) -> (Stage, Option<Loss>) {
        let (stage, loss) = (node.stage(), node.member.loss());
        match (Stage::Joining..=Stage::Exiting).contains(&stage) && self.has_expired() {
            true => (Stage::Down, Some(loss.unwrap_or(Loss::Expired))),
            false => (stage, loss),
        }
    }

    /// Fails the check of the readiness if the session is bad by the clock.
    pub(crate) fn refresh_check(&self) {
        if self.progress.borrow().stage == Some(Stage::Up) && self.has_expired() {
            self.check.mark_failed(format!("lost its place: {}", Loss::Expired));
        }
    }

    fn has_expired(&self) -> bool {
        // A driver that has been closed gives its session up itself.
        let standing = self.standing.get().filter(|_| !self.close.is_cancelled());
        standing.is_some_and(|standing| !standing.is_good())
    }

    pub(crate) fn raise_goal(&self, goal: Goal) {
        self.goal.send_if_modified(|before| {
            let rises = *before < goal;
            *before = (*before).max(goal);
            rises
        });
    }
}

// === impl Progress ===

impl Progress {
    /// Returns whether there is nothing to leave: the node never joined, is down, or has left.
    pub(crate) fn is_outside(&self) -> bool {
        self.is_over
            || match self.stage {
                None | Some(Stage::Outside | Stage::Removed | Stage::Down) => true,
                Some(Stage::Joining | Stage::Up | Stage::Leaving | Stage::Exiting) => false,
            }
    }

    pub(crate) fn of(node: &Node, before: &Self) -> Self {
        let view = node.view();
        let me = node.me();
        let owned = || me.iter().flat_map(|me| view.owned_by(&me.id, me.incarnation));
        let is_singleton = |region: &str| view.kind(region) == RegionKind::Singleton;
        let record = me.as_ref().and_then(|me| view.node(&me.id, me.incarnation));
        let singletons = owned().filter(|(shard, _)| is_singleton(&shard.region));
        let stage = Some(node.stage());
        Self {
            stage,
            since: if before.stage == stage { before.since } else { Some(now()) },
            waiting_for: waiting::line(node),
            drain: record.map(|record| record.value.drain).unwrap_or_default(),
            regions: owned().filter(|(shard, _)| !is_singleton(&shard.region)).count(),
            singletons: singletons.map(|(shard, _)| Arc::clone(&shard.region)).collect(),
            leader: view.leader.as_ref().map(|leader| leader.value.node.clone()),
            loss: node.member.loss(),
            failure: before.failure.clone(),
            is_over: before.is_over,
        }
    }
}

// === impl Failure ===

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Incompatible(one), Self::Incompatible(other)) => one == other,
            (Self::Store(one), Self::Store(other)) => one.to_string() == other.to_string(),
            (Self::Incompatible(_), Self::Store(_)) | (Self::Store(_), Self::Incompatible(_)) => {
                false
            }
        }
    }
}
