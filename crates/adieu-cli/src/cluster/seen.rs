//! The state of a cluster, as the admin port of a node reports it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The clusters of a process.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    pub(super) clusters: Vec<Seen>,
    /// All of it, for programs.
    pub(super) raw: Value,
}

/// One cluster, as one node sees it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    pub(super) cluster: String,
    pub(super) node: String,
    pub(super) stage: String,
    pub(super) leader: Option<String>,
    pub(super) loss: Option<String>,
    pub(super) waiting_for: Option<Waiting>,
    pub(super) session_left_ms: f64,
    #[serde(default)]
    pub(super) is_stopping: bool,
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) vanished: Vec<Vanished>,
    #[serde(default)]
    pub(super) gone: Vec<Gone>,
    #[serde(default)]
    pub(super) singletons: Vec<Singleton>,
    #[serde(default)]
    pub(super) regions: Vec<Region>,
    #[serde(default)]
    pub(super) last_moves: Vec<LastMove>,
    #[serde(default)]
    pub(super) failing_links: Vec<FailingLink>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Waiting {
    pub(super) what: String,
    pub(super) for_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Node {
    pub(super) node: String,
    pub(super) state: String,
    pub(super) ready: bool,
    pub(super) build: String,
    pub(super) zone: Option<String>,
    pub(super) address: Option<String>,
    pub(super) renewed_ms: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Vanished {
    pub(super) node: String,
    pub(super) for_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Gone {
    pub(super) node: String,
    pub(super) how: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Singleton {
    pub(super) name: String,
    pub(super) owner: Option<String>,
    pub(super) fence: Option<u64>,
    pub(super) state: String,
    pub(super) moves_to: Option<String>,
    pub(super) instance: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) shards: u32,
    pub(super) free: u32,
    /// On the queried node.
    pub(super) entities: u64,
    pub(super) kept: u64,
    /// The numbers of the shards of each owner.
    #[serde(default)]
    pub(super) owners: BTreeMap<String, Vec<u32>>,
    #[serde(default)]
    pub(super) moves: Vec<Moving>,
}

/// A shard that is to be handed to another node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Moving {
    pub(super) shard: u32,
    pub(super) from: String,
    pub(super) to: String,
}

/// A shard that a node has received.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LastMove {
    pub(super) name: String,
    pub(super) shard: u32,
    pub(super) from: Option<String>,
    pub(super) to: String,
    pub(super) took_ms: f64,
    pub(super) why: String,
    pub(super) ago_ms: f64,
}

/// A node that the queried node cannot reach.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FailingLink {
    pub(super) node: String,
    pub(super) address: String,
    pub(super) for_ms: f64,
    pub(super) error: String,
}

/// The progress of another node's leave, as the queried node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaveState {
    /// It is there, or its end is not decided yet.
    Present,
    Left,
    /// It died, or lost its place.
    Lost,
    /// Not known: the queried node is itself no longer in the cluster.
    Blind,
}

// === impl Clusters ===

impl Clusters {
    pub(super) fn new(raw: Value) -> Option<Self> {
        let clusters = Vec::<Seen>::deserialize(raw.get("clusters")?).ok()?;
        Some(Self { clusters, raw })
    }

    pub(super) fn named(&self, name: &str) -> Option<Seen> {
        self.clusters.iter().find(|it| it.cluster == name).cloned()
    }
}

// === impl Seen ===

impl Seen {
    /// Returns the names of the singletons that a node owns.
    pub(super) fn owned_by(&self, node: &str) -> Vec<&str> {
        let owned = self.singletons.iter().filter(|it| it.owner.as_deref() == Some(node));
        owned.map(|it| it.name.as_str()).collect()
    }

    /// Returns the owner of a shard, and the node that is to receive it, as far as they are known.
    pub(super) fn shard(&self, name: &str, number: u32) -> (Option<&str>, Option<&str>) {
        if let Some(it) = self.singletons.iter().find(|it| it.name == name && number == 0) {
            return (it.owner.as_deref(), it.moves_to.as_deref());
        }
        let Some(region) = self.regions.iter().find(|it| it.name == name) else {
            return (None, None);
        };
        let owner = region.owners.iter().find(|(_, shards)| shards.contains(&number));
        let moving = region.moves.iter().find(|it| it.shard == number);
        (owner.map(|(owner, _)| owner.as_str()), moving.map(|it| it.to.as_str()))
    }

    /// Returns whether the queried node no longer sees the cluster.
    pub(super) fn is_blind(&self) -> bool {
        matches!(self.stage.as_str(), "removed" | "down")
    }

    /// Returns how far another node is, after it was requested to leave.
    pub(super) fn leave_state(&self, node: &str) -> LeaveState {
        if self.nodes.iter().any(|it| it.node == node) || self.has_vanished(node) {
            return match (self.stage.as_str(), self.node == node) {
                ("down", true) => LeaveState::Lost,
                ("removed", true) => LeaveState::Left,
                _ if self.is_blind() => LeaveState::Blind,
                _ => LeaveState::Present,
            };
        }
        match self.gone.iter().find(|it| it.node == node) {
            Some(gone) if gone.how != "left" => LeaveState::Lost,
            // The record of a departure is deleted after a while.
            Some(_) | None => LeaveState::Left,
        }
    }

    fn has_vanished(&self, node: &str) -> bool {
        self.vanished.iter().any(|it| it.node == node)
    }
}
