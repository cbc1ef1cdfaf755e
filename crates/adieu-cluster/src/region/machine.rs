//! The owner's side of a shard: open it, close it, hand it over. Pure: views come in, proposals go
//! out.
//!
//! # Invariants
//!
//! 1. A shard is open under one epoch. Once it is closed, it never opens again under that epoch.
//! 2. A shard is handed over only after everything that ran in it has ended.
//! 3. The owner chooses the receiver, so a node that leaves needs no leader for it.

use std::collections::BTreeMap;

use crate::allocate::{Eligible, is_candidate, place};
use crate::commits::{Commits, Me, Seen, Target};
use crate::proposal::{Proposal, Purpose};
use crate::records::{Drain, Mode, RegionKind, ShardId, ShardRecord};
use crate::store::{Commit, Revision};
use crate::view::View;

/// The shards that this node owns, as far as it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    held: BTreeMap<ShardId, Held>,
}

/// A shard that this node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The epoch of the grant. It is also the fence.
    pub(crate) epoch: Revision,
    pub(crate) state: ShardState,
}

/// The state of a shard on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardState {
    /// Work may run in it, while the session is good.
    Open,
    /// No new work may begin, and running work must end.
    Closing,
    /// Nothing runs in it.
    Drained,
}

// === impl Regions ===

impl Regions {
    pub(crate) fn held(&self) -> impl Iterator<Item = (&ShardId, Held)> {
        self.held.iter().map(|(shard, held)| (shard, *held))
    }

    /// Updates the shards of this node from a view.
    pub(crate) fn see(&mut self, me: &Me, view: &View) {
        let is_mine = |shard: &ShardId, held: &Held| {
            let record = view.shards.get(shard).and_then(|it| it.value.ownership());
            record.is_some_and(|it| {
                it.owner == me.id && it.incarnation == me.incarnation && it.epoch == held.epoch
            })
        };
        self.held.retain(|shard, held| is_mine(shard, held));
        let node = view.node(&me.id, me.incarnation);
        let drain = node.map(|node| node.value.drain).unwrap_or_default();
        for (shard, record) in view.owned_by(&me.id, me.incarnation) {
            let Some(ownership) = record.value.ownership() else { continue };
            let opened = Held { epoch: ownership.epoch, state: ShardState::Open };
            let held = self.held.entry(shard.clone()).or_insert(opened);
            let drains = match view.kind(&shard.region) {
                RegionKind::Region => drain >= Drain::Regions,
                RegionKind::Singleton => drain >= Drain::Singletons,
            };
            // Open => Closing
            if held.state == ShardState::Open && (drains || record.value.is_moving()) {
                held.state = ShardState::Closing;
            }
        }
    }

    /// This node has lost its place: it owns nothing.
    pub(crate) fn lose_all(&mut self) {
        self.held.clear();
    }

    /// Everything that ran in a shard under this epoch has ended. `Closing => Drained`
    pub(crate) fn drained(&mut self, shard: &ShardId, epoch: Revision) {
        if let Some(held) = self.held.get_mut(shard)
            && held.epoch == epoch
            && held.state == ShardState::Closing
        {
            held.state = ShardState::Drained;
        }
    }

    /// Returns the hand-off of shards that are drained: to other nodes, or back to the table.
    pub(crate) fn decide(
        &self,
        me: &Me,
        view: &View,
        eligible: Eligible<'_>,
        commits: &Commits,
        batch: usize,
    ) -> Option<Proposal> {
        let drained = self.held.iter().filter(|(_, held)| held.state == ShardState::Drained);
        let drained: Vec<&ShardId> = drained.map(|(shard, _)| shard).take(batch).collect();
        if drained.is_empty() {
            return None;
        }
        let placed = match view.mode() {
            Mode::Running => place(view, eligible, &drained),
            Mode::Stopping => drained.iter().map(|shard| (*shard, None)).collect(),
        };
        let (mut over, mut back) = (None, None);
        for (id, target) in placed {
            let Some(record) = view.shards.get(id) else { continue };
            let seen = Seen { id, record };
            match wanted(&record.value, id, view, eligible).or(target) {
                Some(target) => join(&mut over, commits.hand_over(me, seen, target)),
                None => join(&mut back, commits.give_back(me, seen)),
            }
        }
        let over = over.map(|commit| Purpose::HandOver.proposes(commit));
        over.or_else(|| back.map(|commit| Purpose::GiveBack.proposes(commit)))
    }
}

/// Returns the node to which the leader has requested that a shard move, if it can still receive
/// it.
fn wanted<'v>(
    record: &'v ShardRecord,
    shard: &ShardId,
    view: &'v View,
    eligible: Eligible<'_>,
) -> Option<Target<'v>> {
    let ShardRecord::Moving { to, .. } = record else { return None };
    if view.mode() == Mode::Stopping
        || eligible.without == Some(to)
        || !is_candidate(view, &shard.region, to)
    {
        return None;
    }
    view.nodes.get_key_value(to).map(|(id, record)| Target { id, record })
}

fn join(commits: &mut Option<Commit>, commit: Commit) {
    *commits = Some(commits.take().map_or_else(|| commit.clone(), |all| all.and(commit.clone())));
}

#[cfg(test)]
mod tests;
