//! The state of a cluster as a node knows it, as a value.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::node::Node;
use crate::records::{Departure, NodeId, NodeState, RegionKind};
use crate::time::now;

/// The state of a cluster as a node knows it. It may be older than the table by the delay of the
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
    /// Which node leads.
    pub leader: Option<NodeId>,
    /// How long this node may act if it cannot keep its session again.
    pub session_left: Duration,
    /// The revision of the table that this was read from.
    pub revision: u64,
    /// All nodes of the cluster.
    pub nodes: Vec<NodeStatus>,
    /// Nodes that have left or died.
    pub gone: Vec<GoneStatus>,
    /// The singletons of the cluster.
    pub singletons: Vec<SingletonStatus>,
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name.
    pub node: NodeId,
    /// How far it is.
    pub state: NodeState,
    /// Whether it takes shards.
    pub ready: bool,
    /// Its build.
    pub build: String,
    /// Its zone.
    pub zone: Option<String>,
    /// Its address.
    pub address: Option<String>,
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
}

// === impl ClusterStatus ===

impl ClusterStatus {
    pub(crate) fn outside(cluster: Arc<str>, node: NodeId) -> Self {
        Self {
            cluster,
            node,
            stage: crate::member::Stage::Outside.to_string(),
            leader: None,
            session_left: Duration::ZERO,
            revision: 0,
            nodes: Vec::new(),
            gone: Vec::new(),
            singletons: Vec::new(),
        }
    }

    pub(crate) fn of(cluster: Arc<str>, id: NodeId, node: &Node) -> Self {
        let (view, now) = (node.view(), now());
        let nodes = view.nodes.iter().map(|(id, record)| {
            let record = &record.value;
            NodeStatus {
                node: id.clone(),
                state: record.state,
                ready: record.ready,
                build: record.build.clone(),
                zone: record.zone.clone(),
                address: record.address.clone(),
            }
        });
        let gone = view.gone.iter();
        let gone = gone.map(|(id, gone)| GoneStatus { node: id.clone(), how: gone.value.how });
        let singletons = view.shards.iter().filter_map(|(shard, record)| {
            let ownership = record.value.ownership();
            (view.kind(&shard.region) == RegionKind::Singleton).then(|| SingletonStatus {
                name: Arc::clone(&shard.region),
                owner: ownership.map(|it| it.owner.clone()),
                fence: ownership.map(|it| it.epoch.get()),
            })
        });
        let left = node.valid_until().saturating_duration_since(now);
        Self {
            cluster,
            node: id,
            stage: node.stage().to_string(),
            leader: view.leader.as_ref().map(|leader| leader.value.node.clone()),
            session_left: if node.is_good(now) { left } else { Duration::ZERO },
            revision: view.revision.get(),
            nodes: nodes.collect(),
            gone: gone.collect(),
            singletons: singletons.collect(),
        }
    }
}
