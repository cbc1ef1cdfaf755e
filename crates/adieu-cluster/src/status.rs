//! The state of a cluster as one node sees it, as a value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::Short;
use serde::{Serialize, Serializer};

use crate::counters::InstanceState;
use crate::handoff::MoveReason;
use crate::node::Node;
use crate::records::{Departure, Mode, NodeId, NodeState, RegionKind, ShardRecord};
use crate::shared::Shared;
use crate::time::now;
use crate::transport::NO_LINKS;

/// The state of a cluster as one node sees it. It may be older than the table by the delay of the
/// watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// This node.
    pub node: NodeId,
    /// The stage of this node; `outside` before it has joined.
    pub stage: String,
    /// The leader.
    pub leader: Option<NodeId>,
    /// Why this node has lost its place, if it has.
    pub loss: Option<String>,
    /// The condition that this node waits for, if it joins or leaves.
    pub waiting_for: Option<Waiting>,
    /// How long this node may act if it cannot keep its session again.
    #[serde(serialize_with = "millis", rename = "session_left_ms")]
    pub session_left: Duration,
    /// The revision of the table that this was read from.
    pub revision: u64,
    /// How long ago the table last reported anything.
    #[serde(serialize_with = "millis", rename = "view_age_ms")]
    pub view_age: Duration,
    /// Whether the whole cluster is being stopped.
    pub is_stopping: bool,
    /// All nodes of the cluster.
    pub nodes: Vec<NodeStatus>,
    /// Nodes whose sessions have ended, and whose shards are not given to others yet.
    pub vanished: Vec<VanishedStatus>,
    /// Nodes that have left or died, except those whose name is in the cluster again.
    pub gone: Vec<GoneStatus>,
    /// The singletons of the cluster.
    pub singletons: Vec<SingletonStatus>,
    /// The regions of the cluster.
    pub regions: Vec<RegionStatus>,
    /// The last 20 moves of shards and singletons that this node has seen, the newest first.
    pub last_moves: Vec<LastMove>,
    /// The nodes that this node tries to reach, and cannot.
    pub failing_links: Vec<LinkStatus>,
}

/// A shard that a node has received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LastMove {
    /// The region or singleton.
    pub name: Arc<str>,
    /// The number of the shard; 0 for a singleton.
    pub shard: u32,
    /// The owner before; none if there was none, or this node has not seen it.
    pub from: Option<NodeId>,
    /// The node that has received it.
    pub to: NodeId,
    /// How long the move took: from the instant at which this node saw that the owner was about to
    /// hand the shard over, had vanished or was absent, until the next node owned the shard.
    #[serde(serialize_with = "millis", rename = "took_ms")]
    pub took: Duration,
    /// Why it moved.
    pub why: MoveReason,
    /// How long ago that was.
    #[serde(serialize_with = "millis", rename = "ago_ms")]
    pub ago: Duration,
}

/// A node that this node tries to reach, and cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LinkStatus {
    /// The other node.
    pub node: NodeId,
    /// The address that this node dials.
    pub address: String,
    /// For how long every attempt has failed.
    #[serde(serialize_with = "millis", rename = "for_ms")]
    pub since: Duration,
    /// Why the last attempt failed.
    pub error: String,
}

/// One region of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegionStatus {
    /// Its name.
    pub name: Arc<str>,
    /// How many shards it has.
    pub shards: usize,
    /// How many of them a node owns.
    pub owned: usize,
    /// How many of those are to be handed to another node.
    pub moving: usize,
    /// How many no node owns.
    pub free: usize,
    /// How many this node owns.
    pub mine: usize,
    /// How many entities run or wait on this node.
    pub entities: usize,
    /// How many passes of [`Region::enter`](crate::Region::enter) are held on this node. A request that
    /// is routed by key and runs on this node counts as one.
    pub passes: usize,
    /// How many messages this node keeps until their shards have an owner that can be reached.
    pub kept: usize,
    /// How many messages of this node their owners have neither accepted nor refused.
    pub outstanding: usize,
    /// How many messages of other nodes this node holds, because they are ahead of its view.
    pub held: usize,
    /// The numbers of the shards of each owner.
    pub owners: BTreeMap<NodeId, Vec<u32>>,
    /// The shards that are to be handed to another node.
    pub moves: Vec<MoveStatus>,
}

/// A shard that is to be handed to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MoveStatus {
    /// The number of the shard.
    pub shard: u32,
    /// Its owner.
    pub from: NodeId,
    /// The node that receives it.
    pub to: NodeId,
}

/// The condition that a node waits for, and since when.
///
/// Displayed, it reads `leave: waiting for acknowledgement by shop-2, 1.2s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The condition.
    pub what: String,
    /// How long it has been in this stage.
    #[serde(serialize_with = "millis", rename = "for_ms")]
    pub since: Duration,
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name.
    pub node: NodeId,
    /// Its state.
    pub state: NodeState,
    /// Whether it takes shards.
    pub ready: bool,
    /// Its build.
    pub build: String,
    /// Its zone.
    pub zone: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// How long ago it kept its session. Known only of this node: the store does not show the
    /// sessions of others.
    #[serde(serialize_with = "optional_millis", rename = "renewed_ms")]
    pub renewed: Option<Duration>,
}

/// A node whose session has ended without the node having left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VanishedStatus {
    /// Its name.
    pub node: NodeId,
    /// For how long it has been missing.
    #[serde(serialize_with = "millis", rename = "for_ms")]
    pub since: Duration,
}

/// A node that has left or died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GoneStatus {
    /// Its name.
    pub node: NodeId,
    /// Whether it left or died.
    pub how: Departure,
}

/// One singleton of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SingletonStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The node that runs it.
    pub owner: Option<NodeId>,
    /// The fence of its current instance.
    pub fence: Option<u64>,
    /// Its state between two nodes.
    pub state: SingletonState,
    /// The node that is to receive it.
    pub moves_to: Option<NodeId>,
    /// The state of its instance. Present only for instances on this node.
    pub instance: Option<InstanceState>,
}

/// The state of a singleton between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SingletonState {
    /// No node owns it: no node that has declared it is up and ready.
    Free,
    /// A node owns it.
    Owned,
    /// The leader has requested that its owner hand it over.
    Moving,
    /// Its owner has vanished. It is placed again after the removal margin.
    Vanished,
}

// === impl ClusterStatus ===

impl ClusterStatus {
    pub(crate) fn of(shared: &Shared) -> Self {
        let progress = shared.progress.borrow().clone();
        let handing_over = shared.hand_over_progress(&progress);
        let since = progress.since.map_or(Duration::ZERO, |since| now() - since);
        let waiting_for = progress.waiting_for.map(|what| Waiting { what, since });
        let handing_over = handing_over.map(|(what, since)| Waiting { what, since });
        let waiting_for = handing_over.or(waiting_for);
        let status = Self {
            cluster: Arc::clone(&shared.cluster),
            node: shared.id.clone(),
            stage: crate::member::Stage::Outside.to_string(),
            leader: None,
            loss: None,
            waiting_for,
            session_left: Duration::ZERO,
            revision: 0,
            view_age: Duration::ZERO,
            is_stopping: false,
            nodes: Vec::new(),
            vanished: Vec::new(),
            gone: Vec::new(),
            singletons: Vec::new(),
            regions: Vec::new(),
            last_moves: last_moves(shared),
            failing_links: failing_links(shared),
        };
        match &*shared.node() {
            Some(node) => status.seen_by(node, shared),
            None => status,
        }
    }

    fn seen_by(self, node: &Node, shared: &Shared) -> Self {
        let (view, now) = (node.view(), now());
        let me = node.me();
        let nodes = view.nodes.iter().map(|(id, record)| {
            let is_me = me.as_ref().is_some_and(|me| me.id == *id);
            let record = &record.value;
            NodeStatus {
                node: id.clone(),
                state: record.state,
                ready: record.ready,
                build: record.build.clone(),
                zone: record.zone.clone(),
                address: record.address.clone(),
                weight: record.weight,
                renewed: is_me.then(|| now.saturating_duration_since(node.renewed())),
            }
        });
        let vanished = node.missing().map(|(id, since)| {
            let since = now.saturating_duration_since(since);
            VanishedStatus { node: id.clone(), since }
        });
        // A process of the same name may be in the cluster again.
        let gone = view.gone.iter().filter(|(id, _)| !view.nodes.contains_key(*id));
        let gone = gone.map(|(id, gone)| GoneStatus { node: id.clone(), how: gone.value.how });
        let instances = shared.counters.instances();
        let singletons = view.shards.iter().filter_map(|(shard, record)| {
            if view.kind(&shard.region) != RegionKind::Singleton {
                return None;
            }
            let ownership = record.value.ownership();
            let (state, moves_to) = match &record.value {
                ShardRecord::Free => (SingletonState::Free, None),
                ShardRecord::Owned(it) if !view.is_alive(it) => (SingletonState::Vanished, None),
                ShardRecord::Owned(_) => (SingletonState::Owned, None),
                ShardRecord::Moving { ownership: it, .. } if !view.is_alive(it) => {
                    (SingletonState::Vanished, None)
                }
                ShardRecord::Moving { to, .. } => (SingletonState::Moving, Some(to.clone())),
            };
            Some(SingletonStatus {
                name: Arc::clone(&shard.region),
                owner: ownership.map(|it| it.owner.clone()),
                fence: ownership.map(|it| it.epoch.get()),
                state,
                moves_to,
                instance: instances.get(&shard.region).copied(),
            })
        });
        let left = node.valid_until().saturating_duration_since(now);
        let (stage, loss) = shared.stage_of(node);
        Self {
            stage: stage.to_string(),
            leader: view.leader.as_ref().map(|leader| leader.value.node.clone()),
            loss: loss.map(|loss| loss.to_string()),
            session_left: if node.is_good(now) && loss.is_none() { left } else { Duration::ZERO },
            revision: view.revision.get(),
            view_age: now.saturating_duration_since(node.heard()),
            is_stopping: view.mode() == Mode::Stopping,
            nodes: nodes.collect(),
            vanished: vanished.collect(),
            gone: gone.collect(),
            singletons: singletons.collect(),
            regions: regions(node, shared),
            failing_links: [self.failing_links, unlinked(node, shared)].concat(),
            ..self
        }
    }
}

fn last_moves(shared: &Shared) -> Vec<LastMove> {
    let now = now();
    let moves = shared.counters.last_moves().into_iter().map(|(at, moved)| LastMove {
        name: moved.shard.region,
        shard: moved.shard.number,
        from: moved.from,
        to: moved.to,
        took: moved.took,
        why: moved.why,
        ago: now.saturating_duration_since(at),
    });
    moves.collect()
}

/// Returns the other nodes, if this node has regions and was built without links.
fn unlinked(node: &Node, shared: &Shared) -> Vec<LinkStatus> {
    let others = node.view().nodes.iter().filter(|(id, _)| **id != shared.id);
    let others = others.filter(|_| shared.lacks_links(node.view()));
    let unlinked = others.map(|(id, other)| LinkStatus {
        node: id.clone(),
        address: other.value.address.clone().unwrap_or_default(),
        since: Duration::ZERO,
        error: NO_LINKS.to_owned(),
    });
    unlinked.collect()
}

fn failing_links(shared: &Shared) -> Vec<LinkStatus> {
    let now = now();
    let failing = shared.here.transport.get().map(|it| it.failing()).unwrap_or_default();
    let failing = failing.into_iter().map(|it| LinkStatus {
        node: it.peer.id,
        address: it.address.to_string(),
        since: now.saturating_duration_since(it.since),
        error: it.why,
    });
    failing.collect()
}

fn regions(node: &Node, shared: &Shared) -> Vec<RegionStatus> {
    let view = node.view();
    let mut regions: Vec<RegionStatus> = Vec::new();
    // Shards are in the order of their regions.
    for (shard, record) in &view.shards {
        if view.kind(&shard.region) != RegionKind::Region {
            continue;
        }
        if regions.last().is_none_or(|last| last.name != shard.region) {
            let count = shared.regions.get(&shard.region).map(|region| region.count());
            let count = count.unwrap_or_default();
            regions.push(RegionStatus {
                name: Arc::clone(&shard.region),
                shards: 0,
                owned: 0,
                moving: 0,
                free: 0,
                mine: 0,
                entities: count.entities,
                passes: count.passes,
                kept: count.kept,
                outstanding: count.outstanding,
                held: count.held,
                owners: BTreeMap::new(),
                moves: Vec::new(),
            });
        }
        let Some(region) = regions.last_mut() else { continue };
        let me = node.me();
        let is_mine = record.value.ownership().is_some_and(|it| {
            me.as_ref().is_some_and(|me| it.owner == me.id && it.incarnation == me.incarnation)
        });
        region.shards += 1;
        region.owned += usize::from(record.value.ownership().is_some());
        region.moving += usize::from(record.value.is_moving());
        region.free += usize::from(record.value == ShardRecord::Free);
        region.mine += usize::from(is_mine);
        if let Some(ownership) = record.value.ownership() {
            region.owners.entry(ownership.owner.clone()).or_default().push(shard.number);
        }
        if let ShardRecord::Moving { ownership, to } = &record.value {
            let (from, to) = (ownership.owner.clone(), to.clone());
            region.moves.push(MoveStatus { shard: shard.number, from, to });
        }
    }
    regions
}

// === impl Waiting ===

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.what, Short(self.since))
    }
}

/// Writes a duration as milliseconds, with a resolution of a microsecond.
fn millis<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_micros() as f64 / 1e3)
}

#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn optional_millis<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => millis(duration, to),
        None => to.serialize_none(),
    }
}
