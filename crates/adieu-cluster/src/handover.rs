//! Describes the progress of the hand-off of regions, and records the entities that were killed for
//! it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, MutexGuard};

use adieu_core::Short;
use adieu_core::adapter::lock;

use crate::entity::Killed;
use crate::member::Stage;
use crate::records::{RegionKind, ShardId};
use crate::shared::{DrainTimes, Progress, Shared};
use crate::time::{Duration, now};
use crate::waiting::LEAVE;

/// How many entities and shards a line names.
const NAMED: usize = 5;

impl Shared {
    pub(crate) fn drain_times(&self) -> MutexGuard<'_, DrainTimes> {
        lock(&self.drain_times)
    }

    /// Returns how many shards of each region this node owns.
    pub(crate) fn owned_shards(&self) -> BTreeMap<Arc<str>, usize> {
        let mut owned = BTreeMap::new();
        if let Some(node) = &*self.node() {
            let held = node.held().map(|(shard, _)| shard);
            for shard in held.filter(|it| node.view().kind(&it.region) == RegionKind::Region) {
                *owned.entry(Arc::clone(&shard.region)).or_default() += 1;
            }
        }
        owned
    }

    /// Describes the hand-off, such as `12/40 shards handed over (cart 7/30, user 5/10); cart/17:
    /// cart-9 busy 3.1s`.
    pub(crate) fn describe_hand_over(&self) -> String {
        let Some(mut line) = self.count_hand_over() else {
            return "waiting for the store".to_owned();
        };
        for (shard, what) in self.obstacles() {
            // Writing to a string cannot fail.
            let _ = write!(line, "; {shard}: {what}");
        }
        line
    }

    /// Returns the progress of the hand-off of regions, and when it began, for the status. Present
    /// from the beginning of the drain until the node announces that it leaves.
    pub(crate) fn hand_over_progress(&self, progress: &Progress) -> Option<(String, Duration)> {
        let begun = self.drain_times().regions?.begun;
        let is_next = match progress.stage? {
            Stage::Up => true,
            // An operator has requested it.
            Stage::Leaving => progress.regions > 0,
            Stage::Outside | Stage::Joining | Stage::Exiting | Stage::Removed | Stage::Down => {
                false
            }
        };
        let count = self.count_hand_over().filter(|_| is_next)?;
        Some((format!("{LEAVE}{count}"), now() - begun))
    }

    /// Counts the shards that were handed over; `None` if this node had none.
    fn count_hand_over(&self) -> Option<String> {
        let total = self.drain_times().owned.clone();
        let left = self.owned_shards();
        let count: usize = total.values().sum();
        if count == 0 {
            return None;
        }
        let done = |name: &Arc<str>, total: usize| {
            total - left.get(name).copied().unwrap_or_default().min(total)
        };
        let all: usize = total.iter().map(|(name, total)| done(name, *total)).sum();
        let each: Vec<_> = total
            .iter()
            .map(|(name, total)| format!("{name} {}/{total}", done(name, *total)))
            .collect();
        Some(format!("{all}/{count} shards handed over ({})", each.join(", ")))
    }

    /// Returns what the slowest shards wait for.
    fn obstacles(&self) -> Vec<(ShardId, String)> {
        let held: Vec<ShardId> = match &*self.node() {
            Some(node) => node.held().map(|(shard, _)| shard.clone()).collect(),
            None => Vec::new(),
        };
        let now = now();
        let mut busy = Vec::new();
        for shard in held {
            let Some(region) = self.regions.get(&shard.region) else { continue };
            if region.config().kind == RegionKind::Singleton {
                continue;
            }
            if let Some((id, since)) = region.busiest(shard.number, now) {
                busy.push((since, shard, format!("{id} busy {}", Short(since))));
            } else {
                let passes = region.passes(shard.number);
                if passes > 0 {
                    busy.push((Default::default(), shard, format!("{passes} passes are held")));
                }
            }
        }
        busy.sort_by(|(one, ..), (other, ..)| other.cmp(one));
        busy.into_iter().take(NAMED).map(|(_, shard, what)| (shard, what)).collect()
    }

    /// Notes which entities were killed, and logs them.
    pub(crate) fn report_killed(&self, shard: &ShardId, killed: Vec<Killed>) {
        if killed.is_empty() {
            return;
        }
        for entity in &killed {
            let (cluster, shard, id) =
                (Arc::clone(&self.cluster), shard.to_string(), Arc::clone(&entity.id));
            let Killed { busy, asks, dead_letters, .. } = *entity;
            let busy = busy.map(|busy| Short(busy).to_string());
            self.log(move || {
                tracing::error!(
                    %cluster, shard, entity = %id, why = "it did not end in time", ?busy,
                    asks_not_run = asks, tells_lost = dead_letters, "entity killed"
                );
            });
        }
        let lines = killed.into_iter().map(|entity| line(shard, &entity));
        self.drain_times().killed.extend(lines);
    }

    /// Logs the messages of a region's dropped entities in one line, because a node may have
    /// 100,000 of them.
    pub(crate) fn report_dropped(&self, region: &Arc<str>, dropped: Vec<(u32, Vec<Killed>)>) {
        let dropped = dropped.into_iter().flat_map(|(number, killed)| {
            let shard = ShardId { region: Arc::clone(region), number };
            killed.into_iter().map(move |entity| (shard.clone(), entity))
        });
        let mut dropped: Vec<_> = dropped.collect();
        if dropped.is_empty() {
            return;
        }
        let sum = |count: fn(&Killed) -> usize| dropped.iter().map(|(_, it)| count(it)).sum();
        let (busy, asks): (usize, usize) =
            (sum(|it| usize::from(it.busy.is_some())), sum(|it| it.asks));
        let (entities, tells): (usize, usize) = (dropped.len(), sum(|it| it.dead_letters));
        dropped.sort_by_key(|(_, it)| std::cmp::Reverse((it.dead_letters, it.busy)));
        let first: Vec<_> = dropped.iter().take(NAMED).map(|(shard, it)| line(shard, it)).collect();
        let (cluster, region, first) =
            (Arc::clone(&self.cluster), Arc::clone(region), first.join(", "));
        if tells > 0 {
            self.troubles.find(format!(
                "{tells} tells to {region} lost, because this node may no longer act: {first}"
            ));
        }
        self.log(move || {
            tracing::warn!(
                %cluster, %region, entities, busy, asks_not_run = asks, tells_lost = tells, first,
                why = "this node may no longer act", "entities dropped"
            );
        });
    }

    /// Returns the entities that were killed, in words; `None` if there were none.
    pub(crate) fn killed(&self) -> Option<String> {
        let times = self.drain_times();
        let named: Vec<_> = times.killed.iter().take(NAMED).cloned().collect();
        let more = times.killed.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
    }
}

fn line(shard: &ShardId, killed: &Killed) -> String {
    let Killed { id, busy, asks, dead_letters } = killed;
    let busy = busy.map_or_else(String::new, |busy| format!(" busy {}", Short(busy)));
    let mut left = Vec::new();
    if *asks > 0 {
        left.push(format!("{asks} asks not run"));
    }
    if *dead_letters > 0 {
        left.push(format!("{dead_letters} tells lost"));
    }
    let left = if left.is_empty() { String::new() } else { format!(" ({})", left.join(", ")) };
    format!("{shard}: {id}{busy}{left}")
}
