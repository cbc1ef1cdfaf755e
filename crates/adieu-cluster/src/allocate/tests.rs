//! Placement: which node gets a shard, how even the load is, and how often shards move in a deployment.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::records::{ConfigRecord, Drain, NodeRecord, NodeState, Ownership, RegionConfig};
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
        is_fresh in any::<bool>(), zones in 1_usize..4,
        weights in proptest::collection::vec(1_u32..4, 9),
    ) {
        let zone = |at: usize| format!("z{}", at % zones);
        // A rollback is a deployment of a build with a lower number.
        let (old, new) = if is_rollback { ("2", "1") } else { ("1", "2") };
        let mut view = view(shards);
        for (at, weight) in weights.iter().take(nodes).enumerate() {
            view.nodes.insert(id(at), versioned(node(old, Some(&zone(at)), *weight), 10 + at as u64));
        }
        let shards = all(&view);
        place_all(&mut view, &shards, None);
        let mut moves: BTreeMap<ShardId, u32> = BTreeMap::new();
        for (at, weight) in weights.iter().take(nodes).enumerate() {
            let young = id(format!("new{at}"));
            // Ready for a moment only, or for long, when the old one leaves.
            let fresh = is_fresh.then(|| young.clone()).into_iter().collect();
            view.nodes.insert(young, versioned(node(new, Some(&zone(at)), *weight), 100 + at as u64));
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
        // The new nodes are as loaded as the old ones were, give or take a share of one node.
        let total: u32 = weights[..nodes].iter().sum();
        for (id, record) in &view.nodes {
            let fair = shards.len() as f64 * f64::from(record.value.weight) / f64::from(total);
            prop_assert!(load(&view, id) as f64 <= 1.5 * fair + 1.0, "{id}: {fair}");
        }
    }

    /// A few nodes of a new build do not receive everything: at most one and a half times a fair
    /// share, and the rest goes to nodes of the old build.
    #[test]
    fn s1520_few_nodes_of_the_newest_build_are_not_overloaded(
        old in 2_usize..9, new in 1_usize..4, shards in 8_u32..200,
    ) {
        let mut view = view(shards);
        for at in 0..old {
            view.nodes.insert(id(at), versioned(node("1", None, 1), 10 + at as u64));
        }
        for at in 0..new {
            let young = id(format!("new{at}"));
            view.nodes.insert(young, versioned(node("2", None, 1), 100 + at as u64));
        }
        let shards = all(&view);
        prop_assert_eq!(place_all(&mut view, &shards, None), shards.len());
        let fair = (shards.len() as f64 * 1.5 / (old + new) as f64).ceil() as usize;
        let mut of_old = 0;
        for name in view.nodes.keys() {
            let load = load(&view, name);
            prop_assert!(load <= fair, "{name}: {load} of {fair}");
            of_old += if view.nodes[name].value.build == "1" { load } else { 0 };
        }
        // The new nodes are full before an old one receives anything.
        prop_assert_eq!(of_old, shards.len().saturating_sub(fair * new));
    }

    /// A shard that has an owner is not touched by a placement, nor by one that cannot improve the
    /// balance.
    #[test]
    fn s1521_placement_is_sticky_and_depends_only_on_the_view(
        nodes in 1_usize..8, shards in 1_u32..120, weights in proptest::collection::vec(1_u32..4, 8),
    ) {
        let mut view = view(shards);
        for (at, weight) in weights.iter().take(nodes).enumerate() {
            view.nodes.insert(id(at), versioned(node("1", None, *weight), 10 + at as u64));
        }
        let shards = all(&view);
        place_all(&mut view, &shards, None);
        let eligible = Eligible { fresh: &BTreeSet::new(), without: None };
        let owners = |placed: Vec<Placement<'_>>| -> Vec<_> {
            placed.into_iter().map(|(shard, to)| (shard.clone(), to.unwrap().id.clone())).collect()
        };
        let some: Vec<&ShardId> = shards.iter().step_by(3).collect();
        prop_assert_eq!(
            owners(place(&view, eligible, &some)), owners(place(&view.clone(), eligible, &some)),
        );
        // Shards that were placed evenly are not moved.
        let limits = Limits { moves: 20, percent: 10 };
        let moves = rebalance(&view, eligible, limits, |_| true);
        prop_assert!(moves.is_empty(), "{moves:?}");
        // A new node receives shards from the others, and no shard moves between the others.
        view.nodes.insert(id("new"), versioned(node("1", None, 1), 100));
        for (shard, target) in rebalance(&view, eligible, limits, |_| true) {
            prop_assert_eq!(target.id, &id("new"), "{}", shard);
        }
    }

    /// Rebalancing ends, moves few shards at a time, and makes the loads even by weight.
    #[test]
    fn s1522_rebalancing_ends_and_makes_loads_even(
        owners in proptest::collection::vec(0_usize..4, 1..60),
        nodes in proptest::collection::vec((1_u32..5, 0_u8..3), 1..6),
        percent in 5_usize..40, most in 1_usize..30,
    ) {
        let mut view = view(owners.len() as u32);
        for (at, (weight, zone)) in nodes.iter().enumerate() {
            let zone = format!("z{zone}");
            view.nodes.insert(id(at), versioned(node("1", Some(&zone), *weight), 10 + at as u64));
        }
        for (record, at) in view.shards.values_mut().zip(&owners) {
            let at = at % nodes.len();
            let incarnation = Revision::new(10 + at as u64);
            let epoch = Revision::new(1);
            record.value = ShardRecord::Owned(Ownership { owner: id(at), incarnation, epoch });
        }
        let fresh = BTreeSet::new();
        let limits = Limits { moves: most, percent };
        for round in 0.. {
            prop_assert!(round < 500, "rebalancing does not end");
            let before = view.clone();
            let eligible = Eligible { fresh: &fresh, without: None };
            let moves = rebalance(&before, eligible, limits, |_| true);
            prop_assert!(moves.len() <= (owners.len() * percent).div_ceil(100).min(most));
            if moves.is_empty() {
                break;
            }
            let distinct: BTreeSet<&ShardId> = moves.iter().map(|(shard, _)| *shard).collect();
            prop_assert_eq!(distinct.len(), moves.len(), "a shard moves twice in one step");
            for (shard, target) in moves {
                let (owner, incarnation) = (target.id.clone(), target.record.created);
                view.shards.get_mut(shard).unwrap().value =
                    ShardRecord::Owned(Ownership { owner, incarnation, epoch: Revision::new(1) });
            }
        }
        // No shard could move and leave its new owner with less load than its old one had.
        let by_weight = |at: usize, more: usize| {
            (load(&view, &id(at)) + more) as f64 / f64::from(nodes[at].0)
        };
        for from in 0..nodes.len() {
            for to in 0..nodes.len() {
                let (most, least) = (by_weight(from, 0), by_weight(to, 0));
                let is_even = by_weight(to, 1) >= most - 1e-5 || (most - least) * 10.0 <= most + 1e-4;
                prop_assert!(is_even, "{from} has {most}, {to} has {least}");
            }
        }
    }

    /// Shards that move already count against the limit.
    #[test]
    fn s1522_moves_in_progress_count_against_the_limit(moving in 0_usize..12) {
        let mut view = view(40);
        for at in 0..2 {
            view.nodes.insert(id(at), versioned(node("1", None, 1), 10 + at as u64));
        }
        let (incarnation, epoch) = (Revision::new(10), Revision::new(1));
        let ownership = Ownership { owner: id(0), incarnation, epoch };
        for (at, record) in view.shards.values_mut().enumerate() {
            let ownership = ownership.clone();
            record.value = match at < moving {
                true => ShardRecord::Moving { ownership, to: id(1) },
                false => ShardRecord::Owned(ownership),
            };
        }
        let eligible = Eligible { fresh: &BTreeSet::new(), without: None };
        let moves = rebalance(&view, eligible, Limits { moves: 6, percent: 100 }, |_| true);
        prop_assert_eq!(moves.len(), 6_usize.saturating_sub(moving));
        prop_assert!(moves.iter().all(|(shard, _)| !view.shards[*shard].value.is_moving()));
    }
}

#[test]
fn s1523_a_shard_that_moves_for_balance_goes_to_the_zone_with_the_least_load() {
    let mut view = view(12);
    // Two new nodes: one beside the loaded node, one in a zone of its own.
    for (at, zone) in ["a", "a", "b"].iter().enumerate() {
        view.nodes.insert(id(at), versioned(node("1", Some(zone), 1), 10 + at as u64));
    }
    let (incarnation, epoch) = (Revision::new(10), Revision::new(1));
    for record in view.shards.values_mut() {
        record.value = ShardRecord::Owned(Ownership { owner: id(0), incarnation, epoch });
    }
    let eligible = Eligible { fresh: &BTreeSet::new(), without: None };
    let moves = rebalance(&view, eligible, Limits { moves: 1, percent: 100 }, |_| true);
    assert_eq!(moves.iter().map(|(_, to)| to.id.clone()).collect::<Vec<_>>(), [id(2)]);
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
