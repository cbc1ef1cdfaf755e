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

    pub(crate) fn set_ready(
        &self,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
        ready: bool,
    ) -> Commit {
        self.change_node(id, node, |record| record.ready = ready)
    }

    /// Announces that a node gives its shards away. From this commit on it receives none.
    pub(crate) fn set_drain(
        &self,
        id: &NodeId,
        node: &Versioned<NodeRecord>,
        drain: Drain,
    ) -> Commit {
        self.change_node(id, node, |record| record.drain = drain)
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
        if let Some(leader) = view.leader.as_ref().filter(|leader| leader.value.node == me.id) {
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

    /// Gives a shard back, because no node can take it.
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

    /// Notes that a node has died. Nothing belongs to it any longer.
    pub(crate) fn dead(
        &self,
        leader: Revision,
        id: &NodeId,
        incarnation: Revision,
        view: &View,
    ) -> Commit {
        let gone = GoneRecord { how: Departure::Down, incarnation };
        self.still_leads(leader)
            .not_created_at(self.node(id), incarnation)
            .and(self.note_gone(id, gone, view))
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

    /// Declares a node dead. The node stops when it sees that; its session ends by itself.
    pub(crate) fn out(&self, id: &NodeId, node: &Versioned<NodeRecord>) -> Commit {
        self.change_node(id, node, |record| record.state = NodeState::Down)
    }

    /// Sets whether the cluster runs.
    pub(crate) fn set_mode(&self, before: Option<&Versioned<Mode>>, mode: Mode) -> Commit {
        self.put(Key::Mode, before.map(|before| before.changed), &mode)
    }

    // --- the configuration ---

    /// Writes the configuration, and creates the shards of regions that are new in it. A shard that
    /// exists is not touched: declaring a region again frees nothing.
    pub(crate) fn configure(
        &self,
        before: Option<&Versioned<ConfigRecord>>,
        config: &ConfigRecord,
    ) -> Commit {
        let free = encode(&ShardRecord::Free);
        let mut commit = self.put(Key::Config, before.map(|before| before.changed), config);
        for (region, settings) in &config.regions {
            if before.is_some_and(|before| before.value.regions.contains_key(region)) {
                continue;
            }
            for number in 0..settings.shards {
                let shard = ShardId { region: Arc::clone(region), number };
                commit = commit.create(self.shard(&shard), Arc::clone(&free));
            }
        }
        commit
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
