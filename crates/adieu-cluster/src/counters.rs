//! The counters of this node, for metrics, and the states of its singletons, for the status.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use adieu_core::adapter::lock;
use serde::Serialize;

use crate::handoff::{MoveReason, Moved};
use crate::proposal::Purpose;
use crate::records::RegionKind;
use crate::store::Committed;

/// The state of a singleton's instance on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InstanceState {
    /// It runs.
    Running,
    /// It has been signalled to stop.
    Stopping,
    /// It failed, and is started again after a pause.
    Failed,
    /// It has ended, and is not started again on this node.
    Ended,
}

/// The counters of one node.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    renewals_failed: AtomicU64,
    rest: Mutex<Rest>,
}

#[derive(Clone, Debug, Default)]
struct Rest {
    commits: BTreeMap<(Purpose, &'static str), u64>,
    started: BTreeMap<Arc<str>, u64>,
    failed: BTreeMap<Arc<str>, u64>,
    instances: BTreeMap<Arc<str>, InstanceState>,
    handoffs: BTreeMap<Named, Duration>,
    moves: BTreeMap<(Named, MoveReason), u64>,
    /// The last moves in the cluster, the newest first, and when this node has seen them.
    last_moves: VecDeque<(Instant, Moved)>,
}

/// A region or a singleton, by its name.
pub(crate) type Named = (RegionKind, Arc<str>);

/// How many moves the status shows.
const LAST_MOVES: usize = 20;

// === impl Counters ===

impl Counters {
    fn rest(&self) -> MutexGuard<'_, Rest> {
        lock(&self.rest)
    }

    pub(crate) fn renewal_failed(&self) {
        // Relaxed, here and below, because no other memory depends on this value.
        self.renewals_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a commit by its answer; `None` if it was not answered.
    pub(crate) fn committed(&self, what: Purpose, answer: Option<&Committed>) {
        let outcome = match answer {
            Some(Committed::Done(_)) => "done",
            Some(Committed::Conflict) => "conflict",
            None => "unanswered",
        };
        *self.rest().commits.entry((what, outcome)).or_default() += 1;
    }

    pub(crate) fn singleton_started(&self, name: &Arc<str>) {
        *self.rest().started.entry(Arc::clone(name)).or_default() += 1;
    }

    pub(crate) fn singleton_failed(&self, name: &Arc<str>) {
        *self.rest().failed.entry(Arc::clone(name)).or_default() += 1;
    }

    /// Notes that a shard has moved. Counts it if this node has received it, so that the sum over all
    /// nodes is the number of moves.
    pub(crate) fn moved(&self, moved: Moved, now: Instant) {
        let mut rest = self.rest();
        if moved.is_mine {
            let named = (moved.kind, Arc::clone(&moved.shard.region));
            rest.handoffs.insert(named.clone(), moved.took);
            *rest.moves.entry((named, moved.why)).or_default() += 1;
        }
        // The first placement of a shard is not listed: a new region would fill the list.
        if moved.from.is_some() {
            rest.last_moves.truncate(LAST_MOVES - 1);
            rest.last_moves.push_front((now, moved));
        }
    }

    /// Returns how long the last hand-over of each region and singleton to this node took.
    pub(crate) fn handoffs(&self) -> BTreeMap<Named, Duration> {
        self.rest().handoffs.clone()
    }

    /// Returns how many shards of each region and singleton this node has received, and why.
    pub(crate) fn moves(&self) -> BTreeMap<(Named, MoveReason), u64> {
        self.rest().moves.clone()
    }

    pub(crate) fn last_moves(&self) -> VecDeque<(Instant, Moved)> {
        self.rest().last_moves.clone()
    }

    pub(crate) fn set_instances(&self, instances: BTreeMap<Arc<str>, InstanceState>) {
        self.rest().instances = instances;
    }

    pub(crate) fn instances(&self) -> BTreeMap<Arc<str>, InstanceState> {
        self.rest().instances.clone()
    }

    pub(crate) fn renewals_failed(&self) -> u64 {
        self.renewals_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn commits(&self) -> BTreeMap<(Purpose, &'static str), u64> {
        self.rest().commits.clone()
    }

    /// Returns how often each singleton was started on this node.
    pub(crate) fn started(&self) -> BTreeMap<Arc<str>, u64> {
        self.rest().started.clone()
    }

    /// Returns how often each singleton failed on this node.
    pub(crate) fn failed(&self) -> BTreeMap<Arc<str>, u64> {
        self.rest().failed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{NodeId, ShardId};
    use crate::time::now;

    #[test]
    fn s1626_the_last_twenty_moves_are_kept_the_newest_first() {
        let (counters, node) = (Counters::default(), |name| NodeId::new(name).unwrap());
        for number in 0..25 {
            let moved = Moved {
                shard: ShardId { region: "cart".into(), number },
                kind: RegionKind::Region,
                from: Some(node("a")),
                to: node("b"),
                is_mine: number < 3,
                took: Duration::from_secs(1),
                why: MoveReason::Left,
            };
            counters.moved(moved.clone(), now());
            counters.moved(Moved { from: None, why: MoveReason::Placed, ..moved }, now());
        }
        let last = counters.last_moves();
        let last: Vec<u32> = last.iter().map(|(_, moved)| moved.shard.number).collect();
        assert_eq!(last, (5..25).rev().collect::<Vec<_>>());
        let counted = |why| counters.moves()[&((RegionKind::Region, "cart".into()), why)];
        assert_eq!((counted(MoveReason::Left), counted(MoveReason::Placed)), (3, 3));
    }
}
