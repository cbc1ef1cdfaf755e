//! Random views for property tests: any combination of records that the types allow, also such that
//! no run would reach.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::records::{Departure, Drain, RegionConfig};

/// The session of the node that the tests are about, which is `n0`.
pub(crate) const SESSION: i64 = 0;
const NODES: usize = 4;
const SHARDS: [(&str, RegionKind, u32); 3] = [
    ("alpha", RegionKind::Singleton, 1),
    ("beta", RegionKind::Singleton, 1),
    ("cart", RegionKind::Region, 3),
];

pub(crate) fn id(at: usize) -> NodeId {
    NodeId::new(format!("n{at}")).unwrap()
}

/// Returns the incarnation that a node has in every random view, if it is there.
pub(crate) fn incarnation(at: usize) -> Revision {
    Revision::new(10 + at as u64)
}

fn node(at: usize) -> impl Strategy<Value = Option<Versioned<NodeRecord>>> {
    let states = [
        NodeState::Joining,
        NodeState::Up,
        NodeState::Up,
        NodeState::Up,
        NodeState::Leaving,
        NodeState::Exiting,
        NodeState::Down,
    ];
    let drains = [Drain::Nothing, Drain::Regions, Drain::Singletons];
    let parts = (
        proptest::sample::select(states.to_vec()),
        proptest::sample::select(drains.to_vec()),
        proptest::bool::weighted(0.8),
        0_u8..2,
    );
    proptest::option::weighted(0.8, parts).prop_map(move |parts| {
        let (state, drain, ready, build) = parts?;
        let value = NodeRecord {
            state,
            ready,
            drain,
            address: None,
            build: build.to_string(),
            zone: None,
            weight: 1,
            hosts: SHARDS.iter().map(|(name, ..)| Arc::from(*name)).collect(),
            protocol: (1, 1),
        };
        let changed = Revision::new(20 + at as u64);
        let session = Some(SessionId::new(at as i64));
        Some(Versioned { value, created: incarnation(at), changed, session })
    })
}

fn shard() -> impl Strategy<Value = Versioned<ShardRecord>> {
    // An owner of an earlier incarnation is dead, whatever the table has for its name.
    (0_u8..4, 0..NODES, any::<bool>(), 0..NODES, 1_u64..6).prop_map(
        |(kind, owner, is_earlier, to, epoch)| {
            let incarnation = if is_earlier { Revision::new(2) } else { incarnation(owner) };
            let ownership =
                Ownership { owner: id(owner), incarnation, epoch: Revision::new(epoch) };
            let value = match kind {
                0 => ShardRecord::Free,
                1 => ShardRecord::Moving { ownership, to: id(to) },
                _ => ShardRecord::Owned(ownership),
            };
            let changed = Revision::new(30 + epoch);
            Versioned { value, created: Revision::new(1), changed, session: None }
        },
    )
}

/// Any view of four nodes, two singletons and a region of three shards.
pub(crate) fn view() -> impl Strategy<Value = View> {
    let nodes: Vec<_> = (0..NODES).map(node).collect();
    let shards = proptest::collection::vec(shard(), 5);
    let gone =
        proptest::collection::vec(proptest::option::of((any::<bool>(), any::<bool>())), NODES);
    let leader = proptest::option::weighted(0.8, 0..NODES);
    (nodes, shards, gone, leader, proptest::bool::weighted(0.2)).prop_map(
        |(nodes, shards, gone, leader, stops)| {
            let regions =
                SHARDS.map(|(name, kind, shards)| (name.into(), RegionConfig { kind, shards }));
            let config = ConfigRecord { protocol: 1, regions: regions.into() };
            let plain = |at| (Revision::new(at), Revision::new(at));
            let ids = SHARDS.iter().flat_map(|(name, _, shards)| {
                (0..*shards).map(|number| ShardId { region: Arc::from(*name), number })
            });
            let (created, changed) = plain(1);
            let mode = if stops { Mode::Stopping } else { Mode::Running };
            let gone = gone.into_iter().enumerate().filter_map(|(at, gone)| {
                let (has_left, is_earlier) = gone?;
                let how = if has_left { Departure::Left } else { Departure::Down };
                let incarnation = if is_earlier { Revision::new(2) } else { incarnation(at) };
                let value = GoneRecord { how, incarnation };
                Some((id(at), Versioned { value, created, changed, session: None }))
            });
            View {
                revision: Revision::new(100),
                config: Some(Versioned { value: config, created, changed, session: None }),
                mode: Some(Versioned { value: mode, created, changed, session: None }),
                leader: leader.map(|at| Versioned {
                    value: LeaderRecord { node: id(at) },
                    created: Revision::new(50),
                    changed: Revision::new(50),
                    session: Some(SessionId::new(at as i64)),
                }),
                beat: Revision::default(),
                nodes: nodes
                    .into_iter()
                    .enumerate()
                    .filter_map(|(at, node)| Some((id(at), node?)))
                    .collect(),
                gone: gone.collect(),
                shards: ids.zip(shards).collect(),
            }
        },
    )
}
