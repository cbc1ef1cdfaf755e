//! The work of the leader: acknowledge, place, take from the dead, rebalance. Pure: views and the time
//! come in, proposals go out.
//!
//! # Invariants
//!
//! 1. Any node that is not down may lead, also one that leaves: the last node of a cluster must be
//!    able to acknowledge itself.
//! 2. Nothing is taken from a node whose record is in the table. After a record has vanished the
//!    leader waits for the removal margin, unless this very incarnation has noted that it left.
//! 3. A leader keeps nothing in memory that the next leader would need: the next one decides from the
//!    same table.

use std::time::{Duration, Instant};

use crate::allocate::{Eligible, place, rebalance};
use crate::commits::{BATCH, Commits, Me, Seen};
use crate::observed::Observed;
use crate::proposal::{Proposal, Purpose, Wake};
use crate::records::{
    Departure, Drain, Mode, NodeRecord, NodeState, Ownership, RegionKind, ShardId, ShardRecord,
};
use crate::settings::Settings;
use crate::store::{Commit, Revision};
use crate::view::{Versioned, View};

/// The leader's side of a node, whether it leads or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leader {
    beats: u64,
    last_beat: Option<Instant>,
}

/// All that the leader decides from.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) now: Instant,
    pub(crate) me: &'a Me,
    pub(crate) view: &'a View,
    pub(crate) observed: &'a Observed,
    pub(crate) settings: &'a Settings,
    pub(crate) commits: &'a Commits,
    /// The most shards to change in one commit.
    pub(crate) batch: usize,
}

// === impl Leader ===

impl Leader {
    /// Returns what this node does as the leader, or to become it.
    pub(crate) fn decide(&mut self, known: Known<'_>, wake: &mut Wake) -> Option<Proposal> {
        let Some(leader) = known.view.led_under(known.me.session) else {
            self.last_beat = None;
            return known.elect(wake);
        };
        let leader = leader.created;
        known
            .acknowledge(leader)
            .or_else(|| known.take_from_the_dead(leader, wake))
            .or_else(|| known.place_free(leader, wake))
            .or_else(|| known.note_dead(leader))
            .or_else(|| known.rebalance(leader, wake))
            .or_else(|| known.forget(leader, wake))
            .or_else(|| self.beat(known, leader, wake))
    }

    fn beat(&mut self, known: Known<'_>, leader: Revision, wake: &mut Wake) -> Option<Proposal> {
        let next = self.last_beat.map(|last| last + known.settings.beat());
        if let Some(next) = next.filter(|next| known.now < *next) {
            wake.at(next);
            return None;
        }
        self.last_beat = Some(known.now);
        self.beats += 1;
        Some(Purpose::Beat.proposes(known.commits.beat(known.me, leader, self.beats)))
    }
}

// === impl Known ===

impl Known<'_> {
    /// Takes the lead, if there is no leader. Nodes try one after another, the oldest member that
    /// does not drain first, so that an election is one commit and not one for each node.
    fn elect(self, wake: &mut Wake) -> Option<Proposal> {
        let since = self.observed.leaderless_since()?;
        let mine = self.view.node(&self.me.id, self.me.incarnation)?;
        let order = |node: &Versioned<NodeRecord>| {
            let NodeRecord { state, drain, .. } = &node.value;
            (*state != NodeState::Up, *drain != Drain::Nothing, node.created)
        };
        let others = self.view.nodes.values().filter(|other| other.value.state != NodeState::Down);
        let ahead = others.filter(|other| order(other) < order(mine)).count().min(10);
        let pause = self.settings.ttl / 100;
        let turn = since + pause * u32::try_from(ahead).unwrap_or(10);
        if self.now < turn {
            wake.at(turn);
            return None;
        }
        Some(Purpose::Lead.proposes(self.commits.lead(self.me)))
    }

    /// Acknowledges nodes that join and nodes that leave.
    fn acknowledge(self, leader: Revision) -> Option<Proposal> {
        let owns_a_region_shard = |id, node: &Versioned<NodeRecord>| {
            let mut owned = self.view.owned_by(id, node.created);
            owned.any(|(shard, _)| self.view.kind(&shard.region) == RegionKind::Region)
        };
        if self.view.mode() == Mode::Running {
            let joining = self.view.in_state(NodeState::Joining);
            let joining = joining.filter(|(_, node)| node.value.ready).take(BATCH);
            let up = joining.map(|(id, node)| self.commits.up(leader, id, node));
            if let Some(commit) = all(up) {
                return Some(Purpose::Up.proposes(commit));
            }
        }
        let leaving = self.view.in_state(NodeState::Leaving).filter(|(id, node)| {
            node.value.drain >= Drain::Regions && !owns_a_region_shard(id, node)
        });
        let exiting = leaving.take(BATCH).map(|(id, node)| self.commits.exiting(leader, id, node));
        all(exiting).map(|commit| Purpose::Exiting.proposes(commit))
    }

    fn take_from_the_dead(self, leader: Revision, wake: &mut Wake) -> Option<Proposal> {
        let mut orphans: Vec<(&ShardId, &Versioned<ShardRecord>, &Ownership)> = Vec::new();
        for (id, shard) in &self.view.shards {
            let Some(owner) = shard.value.ownership() else { continue };
            if self.view.is_alive(owner) {
                continue;
            }
            match self.may_be_taken_at(owner) {
                Some(at) if self.now < at => wake.at(at),
                Some(_) => orphans.push((id, shard, owner)),
                None => {}
            }
        }
        orphans.truncate(self.batch);
        let shards: Vec<&ShardId> = orphans.iter().map(|(id, ..)| *id).collect();
        let placed = self.place(&shards, wake);
        let (mut take, mut free) = (Vec::new(), Vec::new());
        for ((id, record, dead), (_, target)) in orphans.into_iter().zip(placed) {
            let seen = Seen { id, record };
            match target {
                Some(target) => take.push(self.commits.take(leader, seen, dead, target)),
                None => free.push(self.commits.free(leader, seen, dead)),
            }
        }
        let take = all(take.into_iter()).map(|commit| Purpose::Take.proposes(commit));
        take.or_else(|| all(free.into_iter()).map(|commit| Purpose::Free.proposes(commit)))
    }

    /// Returns when a shard can be taken from an owner that is not in the table.
    fn may_be_taken_at(self, owner: &Ownership) -> Option<Instant> {
        let since = self.observed.missing_since(&owner.owner, owner.incarnation)?;
        let has_left = self.view.gone.get(&owner.owner).is_some_and(|gone| {
            gone.value.how == Departure::Left && gone.value.incarnation == owner.incarnation
        });
        Some(if has_left { since } else { since + self.settings.removal_margin })
    }

    fn place_free(self, leader: Revision, wake: &mut Wake) -> Option<Proposal> {
        let free = self.view.shards.iter().filter(|(_, it)| it.value == ShardRecord::Free);
        let free: Vec<&ShardId> = free.map(|(id, _)| id).collect();
        let placed = self.place(&free, wake).into_iter();
        let place = placed.filter_map(|(id, target)| {
            let record = self.view.shards.get(id)?;
            Some(self.commits.place(leader, Seen { id, record }, target?))
        });
        all(place.take(self.batch)).map(|commit| Purpose::Place.proposes(commit))
    }

    fn place<'s>(
        &'s self,
        shards: &[&'s ShardId],
        wake: &mut Wake,
    ) -> Vec<crate::allocate::Placement<'s>> {
        if shards.is_empty() {
            return Vec::new();
        }
        if self.view.mode() == Mode::Stopping {
            return shards.iter().map(|shard| (*shard, None)).collect();
        }
        let (fresh, settles) = self.observed.fresh(self.now, self.settings.settle);
        settles.into_iter().for_each(|at| wake.at(at));
        place(self.view, Eligible { fresh: &fresh, without: None }, shards)
    }

    /// Notes that a node has died, after everything was taken from it.
    fn note_dead(self, leader: Revision) -> Option<Proposal> {
        let dead = self.observed.missing().filter(|(id, incarnation, _)| {
            let is_noted =
                self.view.gone.get(*id).is_some_and(|gone| gone.value.incarnation == *incarnation);
            let is_absent = !self.view.nodes.contains_key(*id);
            !is_noted && is_absent && self.view.owned_by(id, *incarnation).next().is_none()
        });
        let (id, incarnation, _) = { dead }.next()?;
        Some(Purpose::Dead.proposes(self.commits.dead(leader, id, incarnation, self.view)))
    }

    /// Moves shards for balance alone: only while nothing else changes.
    fn rebalance(self, leader: Revision, wake: &mut Wake) -> Option<Proposal> {
        let has_regions = self.view.config.as_ref().is_some_and(|config| {
            config.value.regions.values().any(|region| region.kind == RegionKind::Region)
        });
        let mut up = self.view.nodes.values();
        let build = up.clone().next().map(|node| &node.value.build);
        let is_uniform =
            up.all(|node| node.value.state == NodeState::Up && Some(&node.value.build) == build);
        if !has_regions || !is_uniform || self.view.mode() == Mode::Stopping {
            return None;
        }
        let calm = self.observed.membership_changed()? + self.settings.calm;
        if self.now < calm {
            wake.at(calm);
            return None;
        }
        let (fresh, _) = self.observed.fresh(self.now, self.settings.settle);
        let eligible = Eligible { fresh: &fresh, without: None };
        let rested = |shard: &ShardId| {
            let until = self.observed.moved_at(shard).map(|moved| moved + self.settings.rest);
            until.into_iter().filter(|until| self.now < *until).for_each(|until| wake.at(until));
            until.is_none_or(|until| until <= self.now)
        };
        let moves = rebalance(self.view, eligible, self.settings.limits, rested);
        let request = moves.into_iter().take(self.batch).filter_map(|(id, target)| {
            let record = self.view.shards.get(id)?;
            let ownership = record.value.ownership()?;
            let seen = Seen { id, record };
            Some(self.commits.request_move(leader, seen, ownership, target))
        });
        all(request).map(|commit| Purpose::RequestMove.proposes(commit))
    }

    /// Deletes the notes about nodes that went long ago.
    fn forget(self, leader: Revision, wake: &mut Wake) -> Option<Proposal> {
        let due = |since: Instant, after: Duration| since + after;
        let mut old = Vec::new();
        for (id, gone) in &self.view.gone {
            let Some(since) = self.observed.gone_since(id) else { continue };
            let due = due(since, self.settings.remember_gone);
            if self.now < due {
                wake.at(due);
            } else {
                old.push(self.commits.forget(leader, id, gone));
            }
        }
        all(old.into_iter().take(self.batch)).map(|commit| Purpose::Forget.proposes(commit))
    }
}

/// Joins commits into one; `None` if there are none.
fn all(commits: impl Iterator<Item = Commit>) -> Option<Commit> {
    commits.reduce(Commit::and)
}

#[cfg(test)]
mod tests;
