//! Items for the benches, which applications must not use. Not part of the public API.

#[cfg(feature = "links")]
mod linked;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::allocate::{Eligible, place};
use crate::records::{
    ConfigRecord, Drain, NodeId, NodeRecord, NodeState, RegionConfig, RegionKind, ShardId,
    ShardRecord,
};
use crate::store::Revision;
use crate::view::{Versioned, View};

#[cfg(feature = "links")]
pub use linked::{Linked, NotLinked};

const REGION: &str = "region";

/// A cluster in which no shard of a region has an owner.
#[derive(Debug)]
pub struct Unplaced {
    view: View,
}

// === impl Unplaced ===

impl Unplaced {
    /// Returns a cluster of this many nodes, in three zones, and one region of this many shards.
    #[must_use]
    pub fn new(nodes: u32, shards: u32) -> Self {
        fn versioned<T>(value: T, at: u32) -> Versioned<T> {
            let at = Revision::new(at.into());
            Versioned { value, created: at, changed: at, session: None }
        }
        let region = (Arc::from(REGION), RegionConfig { kind: RegionKind::Region, shards });
        let config = ConfigRecord { protocol: 1, regions: [region].into() };
        let mut view = View { config: Some(versioned(config, 1)), ..View::default() };
        let ids = (0..nodes).filter_map(|at| Some((at, NodeId::new(format!("node-{at}")).ok()?)));
        for (at, id) in ids {
            let record = NodeRecord {
                state: NodeState::Up,
                ready: true,
                drain: Drain::Nothing,
                address: None,
                build: "1".to_owned(),
                zone: Some(format!("zone-{}", at % 3)),
                weight: 1,
                hosts: vec![REGION.into()],
                protocol: (1, 1),
            };
            view.nodes.insert(id, versioned(record, 2 + at));
        }
        for number in 0..shards {
            let shard = ShardId { region: REGION.into(), number };
            view.shards.insert(shard, versioned(ShardRecord::Free, 1));
        }
        Self { view }
    }

    /// Chooses a node for every shard. Returns how many shards have one.
    #[must_use]
    pub fn place(&self) -> usize {
        let shards: Vec<&ShardId> = self.view.shards.keys().collect();
        let eligible = Eligible { fresh: &BTreeSet::new(), without: None };
        let placed = place(&self.view, eligible, &shards);
        placed.iter().filter(|(_, target)| target.is_some()).count()
    }
}
