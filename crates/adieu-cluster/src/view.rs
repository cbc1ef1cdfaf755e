//! A node's view of its cluster: the table at one revision, with types.
//!
//! Machines decide from views, never from single changes. So a change that was missed and a table
//! that was loaded again need no rules of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::records::{
    ConfigRecord, GoneRecord, Key, Keys, LeaderRecord, Mode, NodeId, NodeRecord, NodeState,
    Ownership, RegionKind, ShardId, ShardRecord, decode,
};
use crate::store::{Change, Record, Revision, SessionId, Snapshot};

/// A value of the table, and the revisions that comparisons need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) created: Revision,
    pub(crate) changed: Revision,
    pub(crate) session: Option<SessionId>,
}

/// The table at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) revision: Revision,
    pub(crate) config: Option<Versioned<ConfigRecord>>,
    pub(crate) mode: Option<Versioned<Mode>>,
    pub(crate) leader: Option<Versioned<LeaderRecord>>,
    /// When the leader last wrote its beat.
    pub(crate) beat: Revision,
    pub(crate) nodes: BTreeMap<NodeId, Versioned<NodeRecord>>,
    pub(crate) gone: BTreeMap<NodeId, Versioned<GoneRecord>>,
    pub(crate) shards: BTreeMap<ShardId, Versioned<ShardRecord>>,
}

/// A value that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {key} cannot be read: {problem}; was it written by a newer build?")]
pub struct UnreadableRecord {
    key: Arc<str>,
    problem: String,
}

// === impl View ===

impl View {
    pub(crate) fn load(keys: &Keys, snapshot: &Snapshot) -> Result<Self, UnreadableRecord> {
        let mut view = Self { revision: snapshot.revision, ..Self::default() };
        for record in &snapshot.records {
            view.put(keys, record)?;
        }
        Ok(view)
    }

    /// Brings the view up to a newer revision.
    pub(crate) fn apply(
        &mut self,
        keys: &Keys,
        revision: Revision,
        changes: &[Change],
    ) -> Result<(), UnreadableRecord> {
        for change in changes {
            match change {
                Change::Put(record) => self.put(keys, record)?,
                Change::Deleted { key, .. } => self.delete(keys, key),
            }
        }
        self.revision = self.revision.max(revision);
        Ok(())
    }

    fn put(&mut self, keys: &Keys, record: &Record) -> Result<(), UnreadableRecord> {
        match keys.parse(&record.key) {
            Some(Key::Config) => self.config = Some(read(record)?),
            Some(Key::Mode) => self.mode = Some(read(record)?),
            Some(Key::Leader) => self.leader = Some(read(record)?),
            Some(Key::Beat) => self.beat = record.changed,
            Some(Key::Node(node)) => {
                self.nodes.insert(node, read(record)?);
            }
            Some(Key::Gone(node)) => {
                self.gone.insert(node, read(record)?);
            }
            Some(Key::Shard(shard)) => {
                self.shards.insert(shard, read(record)?);
            }
            None => {}
        }
        Ok(())
    }

    fn delete(&mut self, keys: &Keys, key: &str) {
        match keys.parse(key) {
            Some(Key::Config) => self.config = None,
            Some(Key::Mode) => self.mode = None,
            Some(Key::Leader) => self.leader = None,
            Some(Key::Node(node)) => {
                self.nodes.remove(&node);
            }
            Some(Key::Gone(node)) => {
                self.gone.remove(&node);
            }
            Some(Key::Shard(shard)) => {
                self.shards.remove(&shard);
            }
            Some(Key::Beat) | None => {}
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.as_ref().map(|mode| mode.value).unwrap_or_default()
    }

    /// Returns the record of this incarnation of a node.
    pub(crate) fn node(
        &self,
        id: &NodeId,
        incarnation: Revision,
    ) -> Option<&Versioned<NodeRecord>> {
        self.nodes.get(id).filter(|node| node.created == incarnation)
    }

    /// Returns the leader's record if this session wrote it. Sessions, unlike names, are never used
    /// again, so an earlier process of the same name is not mistaken for this one.
    pub(crate) fn led_under(&self, session: SessionId) -> Option<&Versioned<LeaderRecord>> {
        self.leader.as_ref().filter(|leader| leader.session == Some(session))
    }

    /// Returns what a region is. A region that the configuration does not name yet counts as one
    /// of many shards, which are handed over earlier.
    pub(crate) fn kind(&self, region: &str) -> RegionKind {
        let config = self.config.as_ref().and_then(|config| config.value.regions.get(region));
        config.map_or(RegionKind::Region, |region| region.kind)
    }

    /// Returns whether the table has the record of the owner's incarnation.
    pub(crate) fn is_alive(&self, ownership: &Ownership) -> bool {
        self.node(&ownership.owner, ownership.incarnation).is_some()
    }

    /// Returns the shards that this incarnation of a node owns.
    pub(crate) fn owned_by<'a>(
        &'a self,
        id: &'a NodeId,
        incarnation: Revision,
    ) -> impl Iterator<Item = (&'a ShardId, &'a Versioned<ShardRecord>)> {
        self.shards.iter().filter(move |(_, shard)| {
            let ownership = shard.value.ownership();
            ownership.is_some_and(|it| it.owner == *id && it.incarnation == incarnation)
        })
    }

    /// Returns the nodes in this state.
    pub(crate) fn in_state(
        &self,
        state: NodeState,
    ) -> impl Iterator<Item = (&NodeId, &Versioned<NodeRecord>)> {
        self.nodes.iter().filter(move |(_, node)| node.value.state == state)
    }
}

fn read<T: DeserializeOwned>(record: &Record) -> Result<Versioned<T>, UnreadableRecord> {
    let unreadable = |problem| UnreadableRecord { key: Arc::clone(&record.key), problem };
    let value = decode(&record.value).map_err(unreadable)?;
    let Record { created, changed, session, .. } = *record;
    Ok(Versioned { value, created, changed, session })
}

#[cfg(test)]
pub(crate) mod arbitrary;
