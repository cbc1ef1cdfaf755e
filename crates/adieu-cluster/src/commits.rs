//! The commits of the protocol. Each function states what must still be true for its change to be
//! right; the store checks that in the same step.
//!
//! No other file builds a commit, so this one shows that nothing is written without its comparisons.

use std::sync::Arc;

use crate::records::{
    ConfigRecord, Departure, Drain, GoneRecord, Key, Keys, LeaderRecord, Mode, NodeId, NodeRecord,
    NodeState, Ownership, ShardId, ShardRecord, encode,
};
use crate::store::{Commit, Revision, SessionId};
use crate::view::{Versioned, View};

/// The most shards that one commit changes. etcd refuses a transaction with more than 128
/// comparisons, and each shard brings at most two: its own and that of its target.
pub(crate) const BATCH: usize = 50;

/// This node, while it has a record.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    pub(crate) id: NodeId,
    /// The revision that created its record.
    pub(crate) incarnation: Revision,
    pub(crate) session: SessionId,
}

/// A node that can receive a shard, as it was in the view that chose it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) id: &'a NodeId,
    pub(crate) record: &'a Versioned<NodeRecord>,
}

/// A shard, as it was in the view that the decision was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) id: &'a ShardId,
    pub(crate) record: &'a Versioned<ShardRecord>,
}

/// Builds the commits of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Commits {
    keys: Keys,
}

// === impl Commits ===

impl Commits {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys }
    }

    // --- a node about itself ---

    /// Announces a node. Its configuration was judged against `config`, so that must not have
    /// changed; a record of the same name, of a process that still lives, must be gone.
    pub(crate) fn join(
        &self,
        id: &NodeId,
        session: SessionId,
        record: &NodeRecord,
        config: &Versioned<ConfigRecord>,
    ) -> Commit {
        Commit::new().unchanged(self.key(&Key::Config), config.changed).create_under(
            self.node(id),
            encode(record),
            session,
        )
    }

    /// Changes a node's own record.
    fn change_node(
        &self,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
        change: impl FnOnce(&mut NodeRecord),
    ) -> Commit {
        let mut record = node.value.clone();
        change(&mut record);
        Commit::new().replace(self.node(id), node.changed, encode(&record))
    }

    /// Announces whether a node takes shards, and which shards it hands over. After a commit that
    /// announces a drain, or that the node is not ready, the node receives no shard, even if the
    /// placement was decided before.
    pub(crate) fn announce(
        &self,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
        ready: bool,
        drain: Drain,
    ) -> Commit {
        self.change_node(id, node, |record| {
            record.ready = ready;
            record.drain = drain;
        })
    }

    /// Announces that a node leaves. A leader that is followed by another node resigns in the same
    /// commit, so that the acknowledgement does not wait for an election by time-out.
    pub(crate) fn leave(
        &self,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
        resigns: Option<&Versioned<LeaderRecord>>,
    ) -> Commit {
        let leave = self.change_node(id, node, |record| record.state = NodeState::Leaving);
        match resigns {
            Some(leader) => leave.delete_created_at(self.key(&Key::Leader), leader.created),
            None => leave,
        }
    }

    /// Removes a node that has stopped everything. One revision removes its record and notes that
    /// it left, so no other node waits for a margin.
    pub(crate) fn removed(&self, me: &Me, view: &View) -> Commit {
        let gone = GoneRecord { how: Departure::Left, incarnation: me.incarnation };
        let mut commit = Commit::new().delete_created_at(self.node(&me.id), me.incarnation);
        if let Some(leader) = view.led_under(me.session) {
            commit = commit.delete_created_at(self.key(&Key::Leader), leader.created);
        }
        commit.and(self.note_gone(&me.id, gone, view))
    }

    /// Takes the lead. Only a node that is itself in the table may lead.
    pub(crate) fn lead(&self, me: &Me) -> Commit {
        let record = LeaderRecord { node: me.id.clone() };
        Commit::new().created_at(self.node(&me.id), me.incarnation).create_under(
            self.key(&Key::Leader),
            encode(&record),
            me.session,
        )
    }

    // --- an owner about its shards ---

    /// Hands a shard over. The owner has stopped everything that ran in it.
    pub(crate) fn hand_over(&self, me: &Me, shard: Seen<'_>, target: Target<'_>) -> Commit {
        self.still_me(me).and(self.still_a_target(target)).and(self.grant(shard, target))
    }

    /// Frees a shard of this node, because no node can take it.
    pub(crate) fn give_back(&self, me: &Me, shard: Seen<'_>) -> Commit {
        self.still_me(me).replace(
            self.shard(shard.id),
            shard.record.changed,
            encode(&ShardRecord::Free),
        )
    }

    // --- the leader about others ---

    /// Acknowledges that a node has joined.
    pub(crate) fn up(&self, leader: Revision, id: &NodeId, node: &Versioned<NodeRecord>) -> Commit {
        self.still_leads(leader)
            .and(self.change_node(id, node, |record| record.state = NodeState::Up))
    }

    /// Acknowledges that a node leaves.
    pub(crate) fn exiting(
        &self,
        leader: Revision,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
    ) -> Commit {
        self.still_leads(leader)
            .and(self.change_node(id, node, |record| record.state = NodeState::Exiting))
    }

    /// Places a free shard.
    pub(crate) fn place(&self, leader: Revision, shard: Seen<'_>, target: Target<'_>) -> Commit {
        self.still_leads(leader).and(self.still_a_target(target)).and(self.grant(shard, target))
    }

    /// Requests that the owner hands a shard to another node.
    pub(crate) fn request_move(
        &self,
        leader: Revision,
        shard: Seen<'_>,
        ownership: &Ownership,
        target: Target<'_>,
    ) -> Commit {
        let moving = ShardRecord::Moving { ownership: ownership.clone(), to: target.id.clone() };
        self.still_leads(leader).and(self.still_a_target(target)).replace(
            self.shard(shard.id),
            shard.record.changed,
            encode(&moving),
        )
    }

    /// Takes a shard from a dead owner. The owner's record must be gone, or be that of another
    /// incarnation.
    pub(crate) fn take(
        &self,
        leader: Revision,
        shard: Seen<'_>,
        dead: &Ownership,
        target: Target<'_>,
    ) -> Commit {
        self.still_leads(leader)
            .not_created_at(self.node(&dead.owner), dead.incarnation)
            .and(self.still_a_target(target))
            .and(self.grant(shard, target))
    }

    /// Frees a shard of a dead owner, because no node can take it.
    pub(crate) fn free(&self, leader: Revision, shard: Seen<'_>, dead: &Ownership) -> Commit {
        self.still_leads(leader).not_created_at(self.node(&dead.owner), dead.incarnation).replace(
            self.shard(shard.id),
            shard.record.changed,
            encode(&ShardRecord::Free),
        )
    }

    /// Notes that a node has died. It no longer owns anything. A successor of the same name would
    /// need no note, so its record must be absent.
    pub(crate) fn dead(
        &self,
        leader: Revision,
        id: &NodeId,
        incarnation: Revision,
        view: &View,
    ) -> Commit {
        let gone = GoneRecord { how: Departure::Down, incarnation };
        self.still_leads(leader).absent(self.node(id)).and(self.note_gone(id, gone, view))
    }

    /// Deletes the note about a node that went long ago.
    pub(crate) fn forget(
        &self,
        leader: Revision,
        id: &NodeId,
        gone: &Versioned<GoneRecord>,
    ) -> Commit {
        self.still_leads(leader).delete(self.key(&Key::Gone(id.clone())), gone.changed)
    }

    /// Shows that the leader lives, so that a watch that hangs is noticed.
    pub(crate) fn beat(&self, me: &Me, leader: Revision, count: u64) -> Commit {
        self.still_leads(leader).set_under(self.key(&Key::Beat), count.to_string(), me.session)
    }

    // --- an operator ---

    /// Requests that a node leaves.
    pub(crate) fn request_leave(&self, id: &NodeId, node: &Versioned<NodeRecord>) -> Commit {
        self.change_node(id, node, |record| record.state = NodeState::Leaving)
    }

    /// Declares a node dead. The node stops when it reads this; its session expires.
    pub(crate) fn out(&self, id: &NodeId, node: &Versioned<NodeRecord>) -> Commit {
        self.change_node(id, node, |record| record.state = NodeState::Down)
    }

    /// Sets whether the cluster runs.
    pub(crate) fn set_mode(&self, before: Option<&Versioned<Mode>>, mode: Mode) -> Commit {
        self.put(Key::Mode, before.map(|before| before.changed), &mode)
    }

    // --- the configuration ---

    /// Creates the shards of `config` that are not there, and writes `config` when all are. A shard
    /// that exists is not touched: declaring a region again frees nothing. Call it again with a
    /// newer view until the configuration is written.
    pub(crate) fn configure(&self, view: &View, config: &ConfigRecord) -> Commit {
        let before = view.config.as_ref().map(|before| before.changed);
        let mut missing = config.regions.iter().flat_map(|(region, settings)| {
            let shards =
                (0..settings.shards).map(|number| ShardId { region: Arc::clone(region), number });
            shards.filter(|shard| !view.shards.contains_key(shard))
        });
        let free = encode(&ShardRecord::Free);
        let mut commit = Commit::new();
        for shard in missing.by_ref().take(BATCH) {
            commit = commit.create(self.shard(&shard), Arc::clone(&free));
        }
        if missing.next().is_none() {
            return commit.and(self.put(Key::Config, before, config));
        }
        match before {
            Some(changed) => commit.unchanged(self.key(&Key::Config), changed),
            None => commit.absent(self.key(&Key::Config)),
        }
    }

    // --- parts ---

    /// The shard belongs to the target from this commit on. Its epoch is the revision that the
    /// commit replaces: known before the write, and higher each time.
    fn grant(&self, shard: Seen<'_>, target: Target<'_>) -> Commit {
        let ownership = Ownership {
            owner: target.id.clone(),
            incarnation: target.record.created,
            epoch: shard.record.changed,
        };
        Commit::new().replace(
            self.shard(shard.id),
            shard.record.changed,
            encode(&ShardRecord::Owned(ownership)),
        )
    }

    /// A target that has begun to leave since it was chosen has changed its record.
    fn still_a_target(&self, target: Target<'_>) -> Commit {
        Commit::new().unchanged(self.node(target.id), target.record.changed)
    }

    fn still_me(&self, me: &Me) -> Commit {
        Commit::new().created_at(self.node(&me.id), me.incarnation)
    }

    fn still_leads(&self, leader: Revision) -> Commit {
        Commit::new().created_at(self.key(&Key::Leader), leader)
    }

    fn note_gone(&self, id: &NodeId, gone: GoneRecord, view: &View) -> Commit {
        let before = view.gone.get(id).map(|gone| gone.changed);
        self.put(Key::Gone(id.clone()), before, &gone)
    }

    fn put(&self, key: Key, before: Option<Revision>, value: &impl serde::Serialize) -> Commit {
        let (key, value) = (self.key(&key), encode(value));
        match before {
            Some(changed) => Commit::new().replace(key, changed, value),
            None => Commit::new().create(key, value),
        }
    }

    fn key(&self, key: &Key) -> Arc<str> {
        self.keys.of(key)
    }

    fn node(&self, id: &NodeId) -> Arc<str> {
        self.key(&Key::Node(id.clone()))
    }

    fn shard(&self, id: &ShardId) -> Arc<str> {
        self.key(&Key::Shard(id.clone()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
