//! Placement: who gets a shard, how even that is, and how often shards move in a deployment.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::records::{ConfigRecord, NodeRecord, Ownership, RegionConfig};
use crate::store::{Revision, SessionId};
use crate::view::Versioned;

const REGION: &str = "cart";

fn versioned<T>(value: T, at: u64) -> Versioned<T> {
    let at = Revision::new(at);
    Versioned { value, created: at, changed: at, session: Some(SessionId::new(1)) }
}

fn node(build: &str, zone: Option<&str>, weight: u32) -> NodeRecord {
    NodeRecord {
        state: NodeState::Up,
        ready: true,
        drain: Drain::Nothing,
        address: None,
        build: build.to_owned(),
        zone: zone.map(str::to_owned),
        weight,
        hosts: vec![REGION.into()],
        protocol: (1, 1),
    }
}

fn id(name: impl std::fmt::Display) -> NodeId {
    NodeId::new(format!("n{name}")).unwrap()
}

/// A view with one region of free shards, and no nodes.
fn view(shards: u32) -> View {
    let regions = [(Arc::from(REGION), RegionConfig { kind: RegionKind::Region, shards })];
    let config = ConfigRecord { protocol: 1, regions: regions.into() };
    let mut view = View { config: Some(versioned(config, 1)), ..View::default() };
    for number in 0..shards {
        let shard = ShardId { region: REGION.into(), number };
        view.shards.insert(shard, versioned(ShardRecord::Free, 1));
    }
    view
}

/// Places shards, and writes that to the view. Returns how many were placed.
fn place_all(view: &mut View, shards: &[ShardId], without: Option<&NodeId>) -> usize {
    place_while(view, shards, without, &BTreeSet::new())
}

/// The same, while some nodes have just become ready.
fn place_while(
    view: &mut View,
    shards: &[ShardId],
    without: Option<&NodeId>,
    fresh: &BTreeSet<NodeId>,
) -> usize {
    let before = view.clone();
    let shards: Vec<&ShardId> =
        shards.iter().map(|shard| before.shards.get_key_value(shard).unwrap().0).collect();
    let mut placed = 0;
    for (shard, target) in place(&before, Eligible { fresh, without }, &shards) {
        let record = view.shards.get_mut(shard).unwrap();
        record.value = match target {
            Some(target) => {
                placed += 1;
                let owner = target.id.clone();
                let incarnation = target.record.created;
                ShardRecord::Owned(Ownership { owner, incarnation, epoch: Revision::new(1) })
            }
            None => ShardRecord::Free,
        };
    }
    placed
}

fn all(view: &View) -> Vec<ShardId> {
    view.shards.keys().cloned().collect()
}

fn load(view: &View, id: &NodeId) -> usize {
    let owners = view.shards.values().filter_map(|it| it.value.ownership());
    owners.filter(|it| it.owner == *id).count()
}

proptest! {
    #[test]
    fn shards_are_spread_evenly_by_weight(
        shards in 1_u32..200,
        weights in proptest::collection::vec(1_u32..4, 1..8),
    ) {
        let mut view = view(shards);
        for (at, weight) in weights.iter().enumerate() {
            view.nodes.insert(id(at), versioned(node("1", None, *weight), 10 + at as u64));
        }
        let shards_ids = all(&view);
        prop_assert_eq!(place_all(&mut view, &shards_ids, None), shards as usize);
        let total: u32 = weights.iter().sum();
        for (at, weight) in weights.iter().enumerate() {
            let fair = f64::from(shards) * f64::from(*weight) / f64::from(total);
            let load = load(&view, &id(at)) as f64;
            prop_assert!((load - fair).abs() <= 1.0 + f64::from(*weight), "{load} of {fair}");
        }
    }

    /// The reference: a scan of all nodes for the least load, and then for the least load of a zone.
    #[test]
    fn a_shard_goes_to_the_least_load_and_then_to_the_zone_with_the_least_load(
        owners in proptest::collection::vec(proptest::option::of(0_usize..9), 1..80),
        nodes in proptest::collection::vec((0_usize..4, 1_u32..4), 1..9),
        seed in any::<u64>(),
    ) {
        let mut view = view(owners.len() as u32);
        for (at, (zone, weight)) in nodes.iter().enumerate() {
            let zone = format!("z{zone}");
            view.nodes.insert(id(at), versioned(node("1", Some(&zone), *weight), 10 + at as u64));
        }
        let mut moved = Vec::new();
        let mut loads = vec![0_u64; nodes.len()];
        for (at, (shard, record)) in view.shards.iter_mut().enumerate() {
            let owner = owners[at].map(|at| at % nodes.len());
            if let Some(owner) = owner {
                let incarnation = Revision::new(10 + owner as u64);
                let epoch = Revision::new(1);
                record.value =
                    ShardRecord::Owned(Ownership { owner: id(owner), incarnation, epoch });
            }
            // Some shards are placed again, and do not count where they are.
            match owner {
                Some(owner) if seed >> (at % 64) & 1 == 0 => loads[owner] += 1,
                _ => moved.push(shard.clone()),
            }
        }
        let moved: Vec<&ShardId> = moved.iter().collect();
        let eligible = Eligible { fresh: &BTreeSet::new(), without: None };
        for (shard, target) in place(&view, eligible, &moved) {
            let target = target.unwrap().id;
            let rank = |at: usize| {
                let (zone, weight) = nodes[at];
                let in_zone = nodes.iter().zip(&loads).filter(|((other, _), _)| *other == zone);
                let zone_load: u64 = in_zone.map(|(_, load)| load).sum();
                ((loads[at] + 1) * SCALE / u64::from(weight), zone_load)
            };
            let chosen = (0..nodes.len()).find(|at| id(at) == *target).unwrap();
            let least = (0..nodes.len()).map(rank).min().unwrap();
            prop_assert_eq!(rank(chosen), least, "{}: {:?}", shard, loads);
            loads[chosen] += 1;
        }
    }

    #[test]
    fn only_candidates_receive_shards(
        states in proptest::collection::vec((0_u8..5, any::<bool>(), 0_u8..3, any::<bool>()), 1..6),
    ) {
        let mut view = view(7);
        for (at, (state, ready, drain, hosts)) in states.iter().enumerate() {
            let mut record = node("1", None, 1);
            record.state = [NodeState::Joining, NodeState::Up, NodeState::Leaving,
                NodeState::Exiting, NodeState::Down][usize::from(*state)];
            record.ready = *ready;
            record.drain = [Drain::Nothing, Drain::Regions, Drain::Singletons][usize::from(*drain)];
            if !hosts {
                record.hosts.clear();
            }
            view.nodes.insert(id(at), versioned(record, 10 + at as u64));
        }
        let shards = all(&view);
        place_all(&mut view, &shards, Some(&id(0)));
        for owner in view.shards.values().filter_map(|it| it.value.ownership()) {
            let NodeRecord { state, ready, drain, hosts, .. } = &view.nodes[&owner.owner].value;
            prop_assert_eq!((*state, *ready, *drain), (NodeState::Up, true, Drain::Nothing));
            prop_assert!(!hosts.is_empty() && owner.owner != id(0));
        }
    }

    /// One new node, then one old node less, and so on: each shard moves once.
    #[test]
    fn s602_in_a_surge_deployment_each_shard_moves_once(
        nodes in 1_usize..9, shards in 1_u32..100, is_rollback in any::<bool>(),
        is_fresh in any::<bool>(),
    ) {
        // A rollback is a deployment of a build with a lower number.
        let (old, new) = if is_rollback { ("2", "1") } else { ("1", "2") };
        let mut view = view(shards);
        for at in 0..nodes {
            view.nodes.insert(id(at), versioned(node(old, None, 1), 10 + at as u64));
        }
        let shards = all(&view);
        place_all(&mut view, &shards, None);
        let mut moves: BTreeMap<ShardId, u32> = BTreeMap::new();
        for at in 0..nodes {
            let young = id(format!("new{at}"));
            // Ready for a moment only, or for long, when the old one leaves.
            let fresh = is_fresh.then(|| young.clone()).into_iter().collect();
            view.nodes.insert(young, versioned(node(new, None, 1), 100 + at as u64));
            let leaver = id(at);
            view.nodes.get_mut(&leaver).unwrap().value.drain = Drain::Regions;
            let owned: Vec<ShardId> =
                view.owned_by(&leaver, Revision::new(10 + at as u64)).map(|it| it.0.clone()).collect();
            prop_assert_eq!(place_while(&mut view, &owned, Some(&leaver), &fresh), owned.len());
            for shard in owned {
                *moves.entry(shard).or_default() += 1;
            }
            view.nodes.remove(&leaver);
        }
        prop_assert!(moves.values().all(|count| *count == 1), "{moves:?}");
        prop_assert_eq!(moves.len(), shards.len());
        let loads: Vec<usize> = view.nodes.keys().map(|id| load(&view, id)).collect();
        let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
        prop_assert!(spread <= shards.len() / nodes + 1, "{loads:?}");
    }

    #[test]
    fn rebalancing_ends_and_makes_loads_even(
        owners in proptest::collection::vec(0_usize..4, 1..60), nodes in 1_usize..6,
    ) {
        let mut view = view(owners.len() as u32);
        for at in 0..nodes {
            view.nodes.insert(id(at), versioned(node("1", None, 1), 10 + at as u64));
        }
        for (record, at) in view.shards.values_mut().zip(&owners) {
            let at = at % nodes;
            let incarnation = Revision::new(10 + at as u64);
            let epoch = Revision::new(1);
            record.value = ShardRecord::Owned(Ownership { owner: id(at), incarnation, epoch });
        }
        let fresh = BTreeSet::new();
        let limits = Limits { moves: 20, percent: 10 };
        for round in 0.. {
            prop_assert!(round < 200, "rebalancing does not end");
            let before = view.clone();
            let eligible = Eligible { fresh: &fresh, without: None };
            let moves = rebalance(&before, eligible, limits, |_| true);
            prop_assert!(moves.len() <= owners.len().div_ceil(10).min(20));
            if moves.is_empty() {
                break;
            }
            for (shard, target) in moves {
                let (owner, incarnation) = (target.id.clone(), target.record.created);
                view.shards.get_mut(shard).unwrap().value =
                    ShardRecord::Owned(Ownership { owner, incarnation, epoch: Revision::new(1) });
            }
        }
        let loads: Vec<usize> = (0..nodes).map(|at| load(&view, &id(at))).collect();
        let (most, least) = (*loads.iter().max().unwrap(), *loads.iter().min().unwrap());
        prop_assert!(most - least < 2 || (most - least) * 10 <= most, "{loads:?}");
    }
}

#[test]
fn zones_share_the_load_when_nodes_are_equal() {
    let mut view = view(2);
    for (at, zone) in ["a", "a", "b"].iter().enumerate() {
        view.nodes.insert(id(at), versioned(node("1", Some(zone), 1), 10 + at as u64));
    }
    let shards = all(&view);
    place_all(&mut view, &shards, None);
    assert_eq!(load(&view, &id(2)), 1);
}

#[test]
fn singletons_are_spread_over_the_nodes_together() {
    let mut view = view(0);
    let config = view.config.as_mut().unwrap();
    for name in ["a", "b", "c", "d"] {
        let region = RegionConfig { kind: RegionKind::Singleton, shards: 1 };
        config.value.regions.insert(name.into(), region);
        let shard = ShardId { region: name.into(), number: 0 };
        view.shards.insert(shard, versioned(ShardRecord::Free, 1));
    }
    for at in 0..2 {
        let mut record = node("1", None, 1);
        record.hosts = ["a", "b", "c", "d"].map(Arc::from).to_vec();
        view.nodes.insert(id(at), versioned(record, 10 + at));
    }
    let shards = all(&view);
    place_all(&mut view, &shards, None);
    assert_eq!((load(&view, &id(0)), load(&view, &id(1))), (2, 2));
}

#[test]
fn a_node_that_became_ready_a_moment_ago_is_chosen_only_if_there_is_no_other() {
    let mut view = view(4);
    view.nodes.insert(id(0), versioned(node("1", None, 1), 10));
    view.nodes.insert(id(1), versioned(node("1", None, 1), 11));
    let shards = all(&view);
    let shards: Vec<&ShardId> = shards.iter().collect();
    let owners = |fresh: &[u32]| -> BTreeSet<NodeId> {
        let fresh = fresh.iter().map(id).collect();
        let placed = place(&view, Eligible { fresh: &fresh, without: None }, &shards);
        placed.into_iter().map(|(_, target)| target.unwrap().id.clone()).collect()
    };
    assert_eq!(owners(&[1]), [id(0)].into());
    assert_eq!(owners(&[0, 1]), [id(0), id(1)].into());
}
