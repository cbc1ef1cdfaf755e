//! Measures for how long conditions of the table have held, by this node's clock. Pure: the time is
//! an argument.
//!
//! Every node measures this, even while it does not lead, so that a new leader does not start at
//! zero. The time counts from when this node has seen a condition, which is never too early.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::records::{NodeId, NodeState, ShardId};
use crate::store::Revision;
use crate::view::View;

/// For each condition, the instant since which it has held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    nodes: BTreeMap<NodeId, Node>,
    missing: BTreeMap<(NodeId, Revision), Instant>,
    gone: BTreeMap<NodeId, (Revision, Instant)>,
    /// The epoch of each shard, and since when it has had its owner. A shard that was placed, and not
    /// moved, has no such time.
    moved: BTreeMap<ShardId, (Revision, Option<Instant>)>,
    leaderless: Option<Instant>,
    membership_changed: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Node {
    incarnation: Revision,
    state: NodeState,
    build: String,
    ready_since: Option<Instant>,
}

// === impl Observed ===

impl Observed {
    /// Compares a newer view with the previous state, and records the changes.
    pub(crate) fn see(&mut self, now: Instant, view: &View) {
        self.see_missing(now, view);
        self.see_nodes(now, view);
        self.leaderless = match view.leader {
            Some(_) => None,
            None => self.leaderless.or(Some(now)),
        };
        self.gone.retain(|id, (changed, _)| {
            view.gone.get(id).is_some_and(|gone| gone.changed == *changed)
        });
        for (id, gone) in &view.gone {
            self.gone.entry(id.clone()).or_insert((gone.changed, now));
        }
        self.moved.retain(|shard, _| view.shards.contains_key(shard));
        for (shard, record) in &view.shards {
            let epoch = record.value.ownership().map(|it| it.epoch).unwrap_or_default();
            // The first grant replaces the record with which the shard was created.
            let was_placed = epoch == Revision::default() || epoch == record.created;
            match self.moved.get_mut(shard) {
                Some((before, _)) if *before == epoch => {}
                Some(entry) => {
                    let was_free = entry.0 == Revision::default();
                    *entry = (epoch, (!was_placed && !was_free).then_some(now));
                }
                None => {
                    self.moved.insert(shard.clone(), (epoch, (!was_placed).then_some(now)));
                }
            }
        }
    }

    /// Records the incarnations that are missing: they were in the table or own a shard, and have no
    /// record.
    fn see_missing(&mut self, now: Instant, view: &View) {
        let owners = view.shards.values().filter_map(|shard| shard.value.ownership());
        let mut refers: BTreeSet<(NodeId, Revision)> = owners
            .filter(|ownership| !view.is_alive(ownership))
            .map(|ownership| (ownership.owner.clone(), ownership.incarnation))
            .collect();
        let were_there = self.nodes.iter().map(|(id, node)| (id, node.incarnation));
        let still_missing = self.missing.keys().map(|(id, incarnation)| (id, *incarnation));
        for (id, incarnation) in were_there.chain(still_missing) {
            // If the name is in use again, or the departure is recorded, the incarnation matters only
            // as the owner of shards.
            let is_noted =
                view.gone.get(id).is_some_and(|gone| gone.value.incarnation == incarnation);
            if !view.nodes.contains_key(id) && !is_noted {
                refers.insert((id.clone(), incarnation));
            }
        }
        self.missing.retain(|node, _| refers.contains(node));
        for node in refers {
            self.missing.entry(node).or_insert(now);
        }
    }

    fn see_nodes(&mut self, now: Instant, view: &View) {
        let mut has_changed = self.membership_changed.is_none();
        let before = self.nodes.len();
        self.nodes.retain(|id, node| view.node(id, node.incarnation).is_some());
        has_changed |= self.nodes.len() != before;
        for (id, record) in &view.nodes {
            let value = &record.value;
            let is_ready = value.ready && value.state == NodeState::Up;
            let node = self.nodes.entry(id.clone()).or_insert_with(|| {
                has_changed = true;
                Node {
                    incarnation: record.created,
                    state: value.state,
                    build: value.build.clone(),
                    ready_since: None,
                }
            });
            has_changed |= node.state != value.state || node.build != value.build;
            node.state = value.state;
            node.ready_since = is_ready.then(|| node.ready_since.unwrap_or(now));
        }
        if has_changed {
            self.membership_changed = Some(now);
        }
    }

    /// Returns the incarnations that are not in the table, and since when.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&NodeId, Revision, Instant)> {
        self.missing.iter().map(|((id, incarnation), since)| (id, *incarnation, *since))
    }

    /// Returns since when this incarnation has not been in the table.
    pub(crate) fn missing_since(&self, id: &NodeId, incarnation: Revision) -> Option<Instant> {
        self.missing.get(&(id.clone(), incarnation)).copied()
    }

    /// Returns the nodes that have been ready for less than `settle`, and when the next of them
    /// will have been ready for that long.
    pub(crate) fn fresh(
        &self,
        now: Instant,
        settle: Duration,
    ) -> (BTreeSet<NodeId>, Option<Instant>) {
        let until = |node: &Node| node.ready_since.map(|since| since + settle);
        let fresh = self.nodes.iter().filter_map(|(id, node)| Some((id, until(node)?)));
        let fresh: Vec<_> = fresh.filter(|(_, until)| now < *until).collect();
        let next = fresh.iter().map(|(_, until)| *until).min();
        (fresh.into_iter().map(|(id, _)| id.clone()).collect(), next)
    }

    /// Returns since when there has been no leader; `None` if there is one.
    pub(crate) fn leaderless_since(&self) -> Option<Instant> {
        self.leaderless
    }

    /// Returns when a node last joined, left, died or changed its state.
    pub(crate) fn membership_changed(&self) -> Option<Instant> {
        self.membership_changed
    }

    /// Returns since when the departure of a node has been recorded.
    pub(crate) fn gone_since(&self, id: &NodeId) -> Option<Instant> {
        self.gone.get(id).map(|(_, since)| *since)
    }

    /// Returns when a shard was last seen to move to its present owner. `None` if no node had owned it
    /// before.
    pub(crate) fn moved_at(&self, shard: &ShardId) -> Option<Instant> {
        self.moved.get(shard).and_then(|(_, moved)| *moved)
    }
}
