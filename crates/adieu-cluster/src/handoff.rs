//! Follows the shards of the cluster from owner to owner, and measures by this node's clock how long
//! each was without service. Pure: the time is an argument.
//!
//! Each node follows all shards. The node that receives a shard counts the hand-over, because the
//! process that gives it away usually ends before its metrics are read again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::commits::Me;
use crate::records::{Departure, Drain, NodeId, RegionKind, ShardId, ShardRecord};
use crate::store::Revision;
use crate::view::View;

/// Why a shard went from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MoveReason {
    /// No node had owned it.
    Placed,
    /// The leader requested it for balance, or an operator did.
    Requested,
    /// Its owner left the cluster.
    Left,
    /// Its owner died, or lost its place.
    Died,
}

/// A shard that a node has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) shard: ShardId,
    pub(crate) kind: RegionKind,
    pub(crate) from: Option<NodeId>,
    pub(crate) to: NodeId,
    /// Whether this node has received it.
    pub(crate) is_mine: bool,
    pub(crate) took: Duration,
    pub(crate) why: MoveReason,
}

/// The shards of the cluster, as this node has last seen them.
#[derive(Debug, Default)]
pub(crate) struct Handoffs {
    /// The revision of the last view. A view of the same revision shows nothing new.
    revision: Revision,
    /// How many nodes the last view has shown, and the revision of their last change.
    nodes: (usize, Revision),
    /// The shards of each region, by their numbers.
    seen: BTreeMap<Arc<str>, Vec<Option<Seen>>>,
}

#[derive(Clone, Debug)]
struct Seen {
    changed: Revision,
    /// The last owner, with its incarnation and its epoch; `None` before the first.
    owner: Option<(NodeId, Revision, Revision)>,
    /// When the shard became unserved (its owner was about to stop, was gone or absent), and why.
    unserved: Option<(Instant, MoveReason)>,
}

// === impl Handoffs ===

impl Handoffs {
    /// Compares a view with those before. Returns the shards that were received, by this node or
    /// another one.
    pub(crate) fn see(&mut self, now: Instant, me: Option<&Me>, view: &View) -> Vec<Moved> {
        if view.revision == self.revision {
            return Vec::new();
        }
        self.revision = view.revision;
        let last = view.nodes.values().map(|node| node.changed).max();
        let nodes = (view.nodes.len(), last.unwrap_or_default());
        let are_nodes_same = std::mem::replace(&mut self.nodes, nodes) == nodes;
        self.seen.retain(|region, _| {
            let first = ShardId { region: Arc::clone(region), number: 0 };
            view.shards.range(first..).next().is_some_and(|(shard, _)| shard.region == *region)
        });
        let mut moves = Vec::new();
        let mut shards = view.shards.iter().peekable();
        while let Some((first, _)) = shards.peek() {
            let (region, kind) = (Arc::clone(&first.region), view.kind(&first.region));
            let seen = self.seen.entry(Arc::clone(&region)).or_default();
            while let Some((shard, record)) = shards.next_if(|(shard, _)| shard.region == region) {
                let number = shard.number as usize;
                if seen.len() <= number {
                    seen.resize(number + 1, None);
                }
                let before = seen[number].take();
                // Most shards are as they were, and a view may have 20,000 of them.
                if are_nodes_same && before.as_ref().is_some_and(|it| it.changed == record.changed)
                {
                    seen[number] = before;
                    continue;
                }
                let after = after(before.as_ref(), view, kind, &record.value, now, record.changed);
                moves.extend(before.and_then(|it| moved(it, &after, shard, kind, now, me, view)));
                seen[number] = Some(after);
            }
        }
        moves
    }
}

/// Returns the state of a shard after a view.
fn after(
    before: Option<&Seen>,
    view: &View,
    kind: RegionKind,
    record: &ShardRecord,
    now: Instant,
    changed: Revision,
) -> Seen {
    let owner = record.ownership().map(|it| (it.owner.clone(), it.incarnation, it.epoch));
    let owner = owner.or_else(|| before?.owner.clone());
    let reason = || match &owner {
        None => MoveReason::Placed,
        Some((owner, incarnation, _)) => reason(view, kind, owner, *incarnation),
    };
    let unserved = match is_served(view, kind, record) {
        true => None,
        false => before.and_then(|it| it.unserved).or_else(|| Some((now, reason()))),
    };
    Seen { changed, owner, unserved }
}

/// Returns the move that a view shows, if a shard has another owner than before.
fn moved(
    before: Seen,
    after: &Seen,
    shard: &ShardId,
    kind: RegionKind,
    now: Instant,
    me: Option<&Me>,
    view: &View,
) -> Option<Moved> {
    let (to, incarnation, epoch) = after.owner.as_ref()?;
    let from = before.owner.filter(|(.., before)| before != epoch);
    let was_free = matches!(before.unserved, Some((_, MoveReason::Placed)));
    if after.unserved.is_some() || (from.is_none() && !was_free) {
        return None;
    }
    let (took, why) = match (before.unserved, &from) {
        (Some((since, why)), _) => (now.duration_since(since), why),
        // The whole hand-over arrived in one update.
        (None, Some((from, incarnation, _))) => {
            (Duration::ZERO, reason(view, kind, from, *incarnation))
        }
        (None, None) => (Duration::ZERO, MoveReason::Placed),
    };
    Some(Moved {
        shard: shard.clone(),
        kind,
        from: from.map(|(from, ..)| from),
        to: to.clone(),
        is_mine: me.is_some_and(|me| *to == me.id && *incarnation == me.incarnation),
        took,
        why,
    })
}

/// Returns why an owner no longer serves a shard, by the state of the owner.
fn reason(view: &View, kind: RegionKind, owner: &NodeId, incarnation: Revision) -> MoveReason {
    match view.node(owner, incarnation) {
        Some(node) if node.value.drain >= drain_of(kind) => MoveReason::Left,
        Some(_) => MoveReason::Requested,
        None => {
            let gone = view.gone.get(owner).map(|gone| &gone.value);
            let gone = gone.filter(|gone| gone.incarnation == incarnation);
            match gone.map(|gone| gone.how) {
                Some(Departure::Left) => MoveReason::Left,
                Some(Departure::Down) | None => MoveReason::Died,
            }
        }
    }
}

/// Returns whether the owner of a shard is there and is to keep it.
fn is_served(view: &View, kind: RegionKind, record: &ShardRecord) -> bool {
    let owner = record.ownership().filter(|_| !record.is_moving());
    let node = owner.and_then(|it| view.node(&it.owner, it.incarnation));
    node.is_some_and(|node| node.value.drain < drain_of(kind))
}

/// Returns from which drain on a node hands over the shards of a kind of region.
fn drain_of(kind: RegionKind) -> Drain {
    match kind {
        RegionKind::Region => Drain::Regions,
        RegionKind::Singleton => Drain::Singletons,
    }
}

// === impl MoveReason ===

impl MoveReason {
    /// Returns its name, such as `requested`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Requested => "requested",
            Self::Left => "left",
            Self::Died => "died",
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
