//! Measures how long hand-offs of singletons to this node take, by this node's clock. Pure: the time
//! is an argument.
//!
//! The node that receives a singleton measures this, because the process that gives it away usually
//! ends before its metrics are read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commits::Me;
use crate::records::{Drain, RegionKind, ShardId, ShardRecord};
use crate::store::Revision;
use crate::view::View;

/// The singletons of the cluster, as this node has last seen them.
#[derive(Debug, Default)]
pub(crate) struct Handoffs {
    /// The revision of the last view. A view of the same revision shows nothing new.
    revision: Revision,
    seen: BTreeMap<ShardId, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The epoch of the last owner; `None` before the first.
    epoch: Option<Revision>,
    /// Since when its owner is about to stop or is gone, or there is none.
    since: Option<Instant>,
}

// === impl Handoffs ===

impl Handoffs {
    /// Compares a view with those before. Returns the singletons that this node has received, and how
    /// long each hand-off took.
    pub(crate) fn see(
        &mut self,
        now: Instant,
        me: Option<&Me>,
        view: &View,
    ) -> Vec<(Arc<str>, Duration)> {
        if view.revision == self.revision {
            return Vec::new();
        }
        self.revision = view.revision;
        self.seen.retain(|shard, _| view.shards.contains_key(shard));
        let mut received = Vec::new();
        for (shard, record) in &view.shards {
            if view.kind(&shard.region) != RegionKind::Singleton {
                continue;
            }
            let owner = record.value.ownership();
            let before = self.seen.get(shard).copied();
            let epoch = owner.map(|it| it.epoch).or(before.and_then(|it| it.epoch));
            if !is_served(view, &record.value) {
                let since = before.and_then(|it| it.since).or(Some(now));
                self.seen.insert(shard.clone(), Seen { epoch, since });
                continue;
            }
            self.seen.insert(shard.clone(), Seen { epoch, since: None });
            let Some(before) = before.filter(|before| before.epoch != epoch) else { continue };
            let is_mine = owner.zip(me).is_some_and(|(owner, me)| {
                owner.owner == me.id && owner.incarnation == me.incarnation
            });
            if is_mine {
                // Without an instant, the whole hand-off arrived in one update.
                let took = before.since.map_or(Duration::ZERO, |since| now.duration_since(since));
                received.push((Arc::clone(&shard.region), took));
            }
        }
        received
    }
}

/// Returns whether the owner of a singleton is there and is to keep it.
fn is_served(view: &View, record: &ShardRecord) -> bool {
    let owner = record.ownership().filter(|_| !record.is_moving());
    let node = owner.and_then(|it| view.node(&it.owner, it.incarnation));
    node.is_some_and(|node| node.value.drain < Drain::Singletons)
}
