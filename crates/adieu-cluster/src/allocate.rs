//! Chooses a node for each shard. Pure and deterministic; shards that have an owner stay there
//! unless [`rebalance`] is called.
//!
//! Shards go to the node with the least load for its weight; among equals to the zone with the
//! least load, and then by a hash of shard and node, so that a restart places them in the same way.
//! While several builds are up, shards go to the build of the youngest node, so that in a
//! deployment, or in its rollback, a shard moves once and not from one old node to the next. Once
//! the new nodes have one and a half times their fair share, further shards go to nodes of the
//! other builds.

mod ranking;

use std::collections::{BTreeMap, BTreeSet};

use ranking::{Ranked, Ranking};

use crate::commits::Target;
use crate::records::{NodeId, RegionKind, ShardId, ShardRecord};
use crate::view::View;

/// Restrictions on the nodes that may receive shards, in addition to the view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eligible<'a> {
    /// Nodes that became ready a moment ago. They are chosen only if there is no other, or if they
    /// are of the newest of several builds.
    pub(crate) fresh: &'a BTreeSet<NodeId>,
    /// A node that must not receive anything: the one that gives shards away.
    pub(crate) without: Option<&'a NodeId>,
}

/// A shard and the node that is to have it; `None` if no node can.
pub(crate) type Placement<'v> = (&'v ShardId, Option<Target<'v>>);

/// The load of all nodes, and the placements that were decided since.
struct Loads<'v> {
    view: &'v View,
    nodes: Vec<Node<'v>>,
    /// The hashes of the zones' names.
    zones: Vec<u64>,
    /// By the index that [`Loads::group`] returns.
    groups: Vec<Shards>,
    indices: BTreeMap<Group<'v>, usize>,
}

struct Node<'v> {
    target: Target<'v>,
    hash: u64,
    zone: usize,
    weight: u64,
}

/// A group that is balanced together: the shards of one region, or all singletons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group<'v> {
    Singletons,
    Region(&'v str),
}

/// The shards of one group, by node and by zone.
#[derive(Clone)]
struct Shards {
    total: u64,
    by_node: Vec<u64>,
    by_zone: Vec<u64>,
}

/// The nodes that can receive shards of one region.
struct Pool {
    all: Vec<usize>,
    newest_build: Vec<usize>,
    weight: u64,
}

/// The nodes of a [`Pool`] in the order in which they receive shards.
struct Queue<'v> {
    region: &'v str,
    group: usize,
    weight: u64,
    newest_build: Ranking,
    /// `None` if all nodes are of the newest build.
    all: Option<Ranking>,
}

/// Chooses a node for each of `shards`, none of which counts as owned by its present owner.
pub(crate) fn place<'v>(
    view: &'v View,
    eligible: Eligible<'_>,
    shards: &[&'v ShardId],
) -> Vec<Placement<'v>> {
    let mut loads = Loads::new(view, shards);
    let mut queue: Option<Queue<'v>> = None;
    let choose = |shard: &&'v ShardId| {
        let queue = match &mut queue {
            Some(queue) if queue.region == &*shard.region => queue,
            // The queue of another region is not kept: singletons share their load, so it may no
            // longer be in order. Callers list shards by region.
            other => other.insert(loads.queue(&shard.region, eligible)),
        };
        (*shard, loads.choose(queue, shard.number))
    };
    shards.iter().map(choose).collect()
}

/// Returns whether a node can receive shards of a region now.
pub(crate) fn is_candidate(view: &View, region: &str, id: &NodeId) -> bool {
    view.nodes.get(id).is_some_and(|node| node.value.can_receive(region))
}

/// How much is moved for balance alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most shards of a region that move at the same time.
    pub(crate) moves: usize,
    /// The most as a part of the region's shards, in percent.
    pub(crate) percent: usize,
}

/// Chooses shards that should move to a node with less load. Singletons stay where they are.
pub(crate) fn rebalance<'v>(
    view: &'v View,
    eligible: Eligible<'_>,
    limits: Limits,
    mut may_move: impl FnMut(&ShardId) -> bool,
) -> Vec<(&'v ShardId, Target<'v>)> {
    let mut loads = Loads::new(view, &[]);
    let mut moves = Vec::new();
    let Some(config) = &view.config else { return moves };
    for (region, settings) in &config.value.regions {
        if settings.kind == RegionKind::Singleton {
            continue;
        }
        let of_region = |shard: &&ShardId| shard.region == *region;
        let moving = view.shards.iter().filter(|(_, it)| it.value.is_moving());
        let moving = moving.map(|(id, _)| id).filter(of_region).count();
        let most = (settings.shards as usize * limits.percent).div_ceil(100).min(limits.moves);
        let mut movable: BTreeMap<&NodeId, Vec<&ShardId>> = BTreeMap::new();
        for (id, shard) in &view.shards {
            if let ShardRecord::Owned(ownership) = &shard.value
                && id.region == *region
                && may_move(id)
            {
                movable.entry(&ownership.owner).or_default().push(id);
            }
        }
        let (group, pool) = (loads.group(region), loads.pool(region, eligible));
        for _ in moving..most {
            let Some((from, to)) = loads.spread(group, &pool) else { break };
            let Some(shard) = movable.get_mut(loads.nodes[from].target.id).and_then(Vec::pop)
            else {
                break;
            };
            loads.add(group, from, -1);
            loads.add(group, to, 1);
            moves.push((shard, loads.nodes[to].target));
        }
    }
    moves
}

// === impl Loads ===

impl<'v> Loads<'v> {
    /// Counts all shards but `without`.
    fn new(view: &'v View, without: &[&ShardId]) -> Self {
        let mut zones: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(view.nodes.len());
        for (id, record) in &view.nodes {
            let next = zones.len();
            let zone = *zones.entry(record.value.zone.as_deref()).or_insert(next);
            nodes.push(Node {
                target: Target { id, record },
                hash: mix(hash(id.as_str().as_bytes())),
                zone,
                weight: u64::from(record.value.weight.max(1)),
            });
        }
        let mut hashes = vec![0; zones.len()];
        for (name, zone) in zones {
            hashes[zone] = mix(hash(name.unwrap_or_default().as_bytes()));
        }
        let (groups, indices) = (Vec::new(), BTreeMap::new());
        let mut loads = Self { view, nodes, zones: hashes, groups, indices };
        let mut without = without.to_vec();
        without.sort_unstable();
        let mut without = without.into_iter().peekable();
        let mut last: Option<(&str, usize)> = None;
        for (id, shard) in &view.shards {
            // Shards are in the order of their regions.
            let group = match last {
                Some((region, group)) if region == &*id.region => group,
                _ => loads.group(&id.region),
            };
            last = Some((&id.region, group));
            loads.groups[group].total += 1;
            // Both are in the same order. Records that are not in the table are skipped.
            while without.next_if(|next| *next < id).is_some() {}
            // A shard that is to move counts where it is going.
            let at = match &shard.value {
                _ if without.peek() == Some(&id) => None,
                ShardRecord::Free => None,
                ShardRecord::Owned(ownership) => Some(&ownership.owner),
                ShardRecord::Moving { to, .. } => Some(to),
            };
            let at =
                at.and_then(|at| loads.nodes.binary_search_by(|node| node.target.id.cmp(at)).ok());
            if let Some(at) = at {
                loads.add(group, at, 1);
            }
        }
        loads
    }

    /// Puts the nodes that can receive shards of a region in order.
    fn queue(&mut self, region: &'v str, eligible: Eligible<'_>) -> Queue<'v> {
        let Pool { all, newest_build, weight } = self.pool(region, eligible);
        let group = self.group(region);
        let by_zone = &self.groups[group].by_zone;
        let rank = |nodes: &[usize]| {
            let zones = self.zones.iter().copied().zip(by_zone.iter().copied());
            Ranking::new(zones, nodes.iter().map(|at| self.ranked(group, *at)))
        };
        let rest = (all != newest_build).then(|| rank(&all));
        Queue { region, group, weight, newest_build: rank(&newest_build), all: rest }
    }

    fn ranked(&self, group: usize, at: usize) -> Ranked {
        let Node { hash, zone, weight, .. } = &self.nodes[at];
        let shards = self.groups[group].by_node[at];
        Ranked { at, zone: *zone, hash: *hash, load: (shards + 1) * SCALE / weight }
    }

    fn pool(&self, region: &str, eligible: Eligible<'_>) -> Pool {
        let candidates = self.nodes.iter().enumerate().filter(|(_, node)| {
            let id = node.target.id;
            eligible.without != Some(id) && is_candidate(self.view, region, id)
        });
        let all: Vec<usize> = candidates.map(|(index, _)| index).collect();
        let record = |at: usize| self.nodes[at].target.record;
        let youngest = all.iter().max_by_key(|at| record(**at).created);
        let build = youngest.map(|at| &record(*at).value.build);
        let newest_build: Vec<usize> =
            all.iter().copied().filter(|at| Some(&record(*at).value.build) == build).collect();
        let weight = all.iter().map(|at| self.nodes[*at].weight).sum();
        let settled = |nodes: Vec<usize>| {
            let is_fresh = |at: &usize| eligible.fresh.contains(self.nodes[*at].target.id);
            match nodes.iter().all(is_fresh) {
                true => nodes,
                false => nodes.into_iter().filter(|at| !is_fresh(at)).collect(),
            }
        };
        // In a deployment, the new node may have been ready only for a moment when the old one
        // leaves. A deployment lasts while a node of another build exists, also one that leaves.
        let is_deployment = (0..self.nodes.len()).any(|at| Some(&record(at).value.build) != build);
        let newest_build = if is_deployment { newest_build } else { settled(newest_build) };
        let all = settled(all);
        Pool { all, newest_build, weight }
    }

    /// Returns the index of the group that a region belongs to.
    fn group(&mut self, region: &'v str) -> usize {
        let group = match self.view.kind(region) {
            RegionKind::Singleton => Group::Singletons,
            RegionKind::Region => Group::Region(region),
        };
        let (nodes, zones) = (self.nodes.len(), self.zones.len());
        *self.indices.entry(group).or_insert_with(|| {
            self.groups.push(Shards { total: 0, by_node: vec![0; nodes], by_zone: vec![0; zones] });
            self.groups.len() - 1
        })
    }

    fn add(&mut self, group: usize, at: usize, shards: i64) {
        let zone = self.nodes[at].zone;
        let Shards { by_node, by_zone, .. } = &mut self.groups[group];
        by_node[at] = by_node[at].saturating_add_signed(shards);
        by_zone[zone] = by_zone[zone].saturating_add_signed(shards);
    }

    /// Chooses a node for a shard, and counts the shard there.
    fn choose(&mut self, queue: &mut Queue<'v>, number: u32) -> Option<Target<'v>> {
        let hash = mix(hash(queue.region.as_bytes()) ^ u64::from(number));
        let newest = queue.newest_build.next(hash)?;
        let loads = &self.groups[queue.group];
        // The most that the nodes of the newest build take: one and a half times a fair share.
        let fair = (loads.total * self.nodes[newest].weight * 3).div_ceil(queue.weight.max(1) * 2);
        let chosen = match &queue.all {
            Some(all) if loads.by_node[newest] >= fair => all.next(hash)?,
            _ => newest,
        };
        let before = self.ranked(queue.group, chosen);
        self.add(queue.group, chosen, 1);
        let load = self.ranked(queue.group, chosen).load;
        queue.newest_build.received(before, load);
        if let Some(all) = &mut queue.all {
            all.received(before, load);
        }
        Some(self.nodes[chosen].target)
    }

    /// Returns the node with the most load for its weight, and the node that would have the least with
    /// one shard more, among those for which moving a shard makes the load more even. Among equals, the
    /// shard goes from the zone with the most load to the zone with the least.
    fn spread(&self, group: usize, pool: &Pool) -> Option<(usize, usize)> {
        let loads = &self.groups[group];
        let load =
            |at: usize, more: u64| (loads.by_node[at] + more) * SCALE / self.nodes[at].weight;
        let rank = |at: &usize| (load(*at, 0), loads.by_zone[self.nodes[*at].zone], *at);
        let most = pool.all.iter().copied().max_by_key(rank)?;
        // With equal weights: at least two shards more. A move that would only exchange the most and
        // the least load would be followed by the move back.
        let is_worth_it = |at: &usize| {
            let gap = load(most, 0).saturating_sub(load(*at, 0));
            load(*at, 1) < load(most, 0) && gap * 10 > load(most, 0)
        };
        let least = pool.all.iter().copied().filter(is_worth_it).min_by_key(|at| {
            let (_, zone, at) = rank(at);
            (load(at, 1), zone, at)
        })?;
        Some((most, least))
    }
}

/// Loads are compared as whole numbers: shards times this, by weight.
const SCALE: u64 = 1 << 20;

/// FNV-1a. The standard library's hasher may change from release to release, and nodes of one
/// cluster can be built by different ones.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Mixes the bits of a hash (the finalizer of splitmix64), so that neighbouring shards do not go to the
/// same nodes.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
