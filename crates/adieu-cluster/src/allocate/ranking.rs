//! Keeps nodes in the order in which they receive shards. So each choice costs a look-up in a tree,
//! and not a scan of all nodes.

use std::collections::BTreeSet;

/// The nodes that can receive shards: the least load first, then the zone with the least load, then
/// by hash.
pub(super) struct Ranking {
    zones: Vec<Zone>,
    /// The zones that have nodes: by the least load of their nodes, then by their own load.
    order: Ring<(u64, u64)>,
}

/// A node in a ranking.
#[derive(Clone, Copy)]
pub(super) struct Ranked {
    pub(super) at: usize,
    pub(super) zone: usize,
    pub(super) hash: u64,
    pub(super) load: u64,
}

struct Zone {
    hash: u64,
    load: u64,
    /// Its nodes, by their load.
    nodes: Ring<u64>,
}

/// Entries by rank. Entries of the same rank are on a ring, by their hash.
struct Ring<R> {
    entries: BTreeSet<(R, u64, usize)>,
}

// === impl Ranking ===

impl Ranking {
    /// Puts nodes in order. Of each zone, the hash of its name and its load are given.
    pub(super) fn new(
        zones: impl Iterator<Item = (u64, u64)>,
        nodes: impl Iterator<Item = Ranked>,
    ) -> Self {
        let zone = |(hash, load)| Zone { hash, load, nodes: Ring::new() };
        let mut zones: Vec<Zone> = zones.map(zone).collect();
        for node in nodes {
            zones[node.zone].nodes.entries.insert(node.entry());
        }
        let mut order = Ring::new();
        order.entries.extend(zones.iter().enumerate().filter_map(|(at, zone)| zone.entry(at)));
        Self { zones, order }
    }

    /// Returns the node that receives a shard of this hash.
    pub(super) fn next(&self, hash: u64) -> Option<usize> {
        self.zones[self.order.next(hash)?].nodes.next(hash)
    }

    /// Counts a shard. The node, which need not be in this ranking, has this load now.
    pub(super) fn received(&mut self, node: Ranked, load: u64) {
        let zone = &mut self.zones[node.zone];
        if let Some(before) = zone.entry(node.zone) {
            self.order.entries.remove(&before);
        }
        zone.load += 1;
        if zone.nodes.entries.remove(&node.entry()) {
            zone.nodes.entries.insert(Ranked { load, ..node }.entry());
        }
        self.order.entries.extend(zone.entry(node.zone));
    }
}

// === impl Ranked ===

impl Ranked {
    fn entry(self) -> (u64, u64, usize) {
        (self.load, self.hash, self.at)
    }
}

// === impl Zone ===

impl Zone {
    /// Returns the entry of this zone among all; `None` if it has no nodes.
    fn entry(&self, at: usize) -> Option<((u64, u64), u64, usize)> {
        self.nodes.entries.first().map(|(least, ..)| ((*least, self.load), self.hash, at))
    }
}

// === impl Ring ===

impl<R: Ord + Copy> Ring<R> {
    fn new() -> Self {
        Self { entries: BTreeSet::new() }
    }

    /// Returns the first entry of the lowest rank at or after a hash, around the ring.
    fn next(&self, hash: u64) -> Option<usize> {
        let first = self.entries.first()?;
        let after = self.entries.range((first.0, hash, 0)..).next();
        let next = after.filter(|after| after.0 == first.0).unwrap_or(first);
        Some(next.2)
    }
}
