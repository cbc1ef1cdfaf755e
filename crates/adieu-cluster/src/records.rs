//! The records of a cluster: what nodes write about themselves and about shards, and under which
//! keys.
//!
//! Values are small JSON texts. A field that a node's build does not define is ignored, so that
//! builds of different age can share a cluster; a value that a node cannot read at all is an error
//! that names its key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use adieu_fleet::NameError;
use adieu_fleet::adapter::{NameRules, checked_name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::Revision;

/// Names a node. Unique among the nodes that live at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(Arc<str>);

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeState {
    /// It has announced itself, and waits for the leader.
    Joining,
    /// It is a member: it may own shards.
    Up,
    /// It is leaving, and gives its shards to others.
    Leaving,
    /// The leader has acknowledged that it goes.
    Exiting,
    /// An operator has declared it dead. It stops as soon as it sees this.
    Down,
}

/// The record that a node writes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) state: NodeState,
    /// Whether it takes shards: not while it is cordoned, unavailable or draining.
    pub(crate) ready: bool,
    /// The stage of its drain: not begun, of its regions, or also of its singletons.
    pub(crate) drain: Drain,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) build: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    pub(crate) weight: u32,
    /// The regions and singletons that it can host.
    pub(crate) hosts: Vec<Arc<str>>,
    /// The oldest and the newest protocol that it supports.
    pub(crate) protocol: (u32, u32),
}

/// The shards that a node has begun to hand over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Drain {
    #[default]
    Nothing,
    Regions,
    Singletons,
}

impl NodeRecord {
    /// Returns whether the node can receive shards of a region now.
    pub(crate) fn can_receive(&self, region: &str) -> bool {
        self.state == NodeState::Up
            && self.ready
            && self.drain == Drain::Nothing
            && self.hosts.iter().any(|hosted| **hosted == *region)
    }
}

/// A shard of a region. A singleton is a region with one shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShardId {
    pub(crate) region: Arc<str>,
    pub(crate) number: u32,
}

/// The owner of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum ShardRecord {
    /// No node does.
    Free,
    /// A node owns it.
    Owned(Ownership),
    /// A node owns it, and the leader has requested that it hand the shard over.
    Moving {
        #[serde(flatten)]
        ownership: Ownership,
        to: NodeId,
    },
}

/// The right to run a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ownership {
    pub(crate) owner: NodeId,
    /// The revision that created the owner's record: it distinguishes incarnations of the node.
    pub(crate) incarnation: Revision,
    /// The revision of the record that granted it replaces. Rises with each grant.
    pub(crate) epoch: Revision,
}

/// A node that is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GoneRecord {
    pub(crate) how: Departure,
    /// Only this incarnation is gone.
    pub(crate) incarnation: Revision,
}

/// How a node went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Departure {
    /// It left, and had stopped everything before.
    Left,
    /// It died, or lost the store.
    Down,
}

/// The leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaderRecord {
    pub(crate) node: NodeId,
}

/// The settings on which all nodes of a cluster must agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigRecord {
    pub(crate) protocol: u32,
    pub(crate) regions: BTreeMap<Arc<str>, RegionConfig>,
}

/// The settings of one region on which all nodes must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegionConfig {
    pub(crate) kind: RegionKind,
    pub(crate) shards: u32,
}

/// The kind of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RegionKind {
    Singleton,
    Region,
}

/// Whether the cluster runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    #[default]
    Running,
    /// Every node shuts down, and nothing is moved.
    Stopping,
}

/// A key, by the kind of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Config,
    Mode,
    Leader,
    Beat,
    Node(NodeId),
    Gone(NodeId),
    Shard(ShardId),
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

const NAMES: NameRules = NameRules {
    longest: 100,
    too_long: "it is longer than 100 bytes",
    is_allowed: |c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@'),
    not_allowed: "only letters, digits and the characters - _ . : @ are allowed",
};

// === impl Keys ===

impl Keys {
    pub(crate) fn new(cluster: &str) -> Result<Self, NameError> {
        let cluster = checked("a cluster", cluster)?;
        Ok(Self { prefix: format!("adieu/cluster/{cluster}/").into() })
    }

    /// Returns the prefix of all keys of the cluster.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn of(&self, key: &Key) -> Arc<str> {
        let prefix = &self.prefix;
        let text = match key {
            Key::Config => format!("{prefix}config"),
            Key::Mode => format!("{prefix}mode"),
            Key::Leader => format!("{prefix}leader"),
            Key::Beat => format!("{prefix}beat"),
            Key::Node(node) => format!("{prefix}node/{node}"),
            Key::Gone(node) => format!("{prefix}gone/{node}"),
            Key::Shard(ShardId { region, number }) => format!("{prefix}shard/{region}/{number}"),
        };
        text.into()
    }

    /// Reads a key; `None` if it is of a kind that this build does not define.
    pub(crate) fn parse(&self, key: &str) -> Option<Key> {
        let name = key.strip_prefix(&*self.prefix)?;
        match name.split_once('/') {
            None => match name {
                "config" => Some(Key::Config),
                "mode" => Some(Key::Mode),
                "leader" => Some(Key::Leader),
                "beat" => Some(Key::Beat),
                _ => None,
            },
            Some(("node", node)) => Some(Key::Node(NodeId(node.into()))),
            Some(("gone", node)) => Some(Key::Gone(NodeId(node.into()))),
            Some(("shard", shard)) => {
                let (region, number) = shard.split_once('/')?;
                let number = number.parse().ok()?;
                Some(Key::Shard(ShardId { region: region.into(), number }))
            }
            Some(_) => None,
        }
    }
}

/// Writes a value.
pub(crate) fn encode(value: &impl Serialize) -> Arc<str> {
    // The types above have string keys and finite numbers only, so this cannot fail.
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Reads a value.
pub(crate) fn decode<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| error.to_string())
}

/// Checks a name of a cluster, a node or a region: it becomes a part of a key.
pub(crate) fn checked(what: &'static str, text: &str) -> Result<Arc<str>, NameError> {
    checked_name(what, text, &NAMES)
}

/// Splits the text of a shard such as `cart/17`. A name alone is a singleton. `None` if the number is
/// not one.
#[must_use]
pub fn split_shard(text: &str) -> Option<(&str, u32)> {
    let (region, number) = text.split_once('/').unwrap_or((text, "0"));
    Some((region, number.parse().ok()?))
}

// === impl NodeId ===

impl NodeId {
    /// Returns the id of this text.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than 100 bytes, or has other characters than letters, digits and
    /// `- _ . : @`.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        checked("a node", text.as_ref()).map(Self)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

// === impl NodeState ===

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Leaving => "leaving",
            Self::Exiting => "exiting",
            Self::Down => "down",
        })
    }
}

// === impl RegionKind ===

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Singleton => "singleton",
            Self::Region => "region",
        })
    }
}

// === impl ShardId ===

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.region, self.number)
    }
}

// === impl ShardRecord ===

impl ShardRecord {
    /// Returns the ownership of the shard, if a node owns it.
    pub(crate) fn ownership(&self) -> Option<&Ownership> {
        match self {
            Self::Free => None,
            Self::Owned(ownership) | Self::Moving { ownership, .. } => Some(ownership),
        }
    }

    /// Returns whether the leader has requested that the shard be handed over.
    pub(crate) fn is_moving(&self) -> bool {
        matches!(self, Self::Moving { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = Keys::new("shop").unwrap();
        let node = NodeId::new("shop-1").unwrap();
        let shard = ShardId { region: "cart".into(), number: 17 };
        for key in [
            Key::Config,
            Key::Mode,
            Key::Leader,
            Key::Beat,
            Key::Node(node.clone()),
            Key::Gone(node),
            Key::Shard(shard),
        ] {
            assert_eq!(keys.parse(&keys.of(&key)), Some(key));
        }
        for other in
            ["adieu/cluster/other/config", "adieu/cluster/shop/later", "adieu/cluster/shop/shard/x"]
        {
            assert_eq!(keys.parse(other), None, "{other}");
        }
    }

    #[test]
    fn values_are_read_as_they_are_written_and_unknown_fields_are_ignored() {
        let ownership = Ownership {
            owner: NodeId::new("a").unwrap(),
            incarnation: Revision::new(3),
            epoch: Revision::new(9),
        };
        let moving = ShardRecord::Moving { ownership, to: NodeId::new("b").unwrap() };
        let text = encode(&moving);
        assert_eq!(&*text, r#"{"state":"moving","owner":"a","incarnation":3,"epoch":9,"to":"b"}"#);
        assert_eq!(decode::<ShardRecord>(&text).unwrap(), moving);
        let newer = r#"{"node":"a","since":"later"}"#;
        assert_eq!(decode::<LeaderRecord>(newer).unwrap().node.as_str(), "a");
        assert!(decode::<LeaderRecord>("{}").unwrap_err().contains("node"));
    }

    #[test]
    fn names_become_parts_of_keys() {
        for good in ["shop-1", "10.0.0.7:7070", "größe", "a@b"] {
            assert_eq!(NodeId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a b", "a\nb", &"x".repeat(101)] {
            assert!(NodeId::new(bad).is_err(), "{bad:?}");
        }
    }
}
