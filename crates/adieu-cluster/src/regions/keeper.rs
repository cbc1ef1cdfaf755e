//! The task that starts entities that had to wait, ends idle ones, and calls shards whose time has
//! come.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::RegionMap;
use crate::entity::{Due, Here};
use crate::time::{Duration, Instant, LONGEST, now, sleep_until};

/// How often a node at its limit looks for idle entities.
const LOOK: Duration = Duration::from_millis(100);

/// How often idle entities are looked for, as a part of the time after which they end.
const SWEEPS: u32 = 10;

/// Keeps the entities of a node until the node is closed.
pub(crate) async fn keep(here: Arc<Here>, regions: Arc<RegionMap>, close: CancellationToken) {
    let mut sweep_at = None;
    loop {
        let now = now();
        let starts = match here.starts.start_due(now) {
            Due::Wait(until) => until,
            Due::Evict(count) => {
                evict(&regions, count, now);
                Some(now + LOOK)
            }
        };
        let timers = here.timers.advance(now);
        if sweep_at.is_some_and(|at| at <= now) {
            regions.all().iter().for_each(|region| region.end_idle(now));
            sweep_at = None;
        }
        let idle = regions.all().iter().filter_map(|region| region.idle_after()).min();
        sweep_at = sweep_at.or_else(|| idle.map(|idle| now + idle.min(LONGEST) / SWEEPS));
        let wake = [starts, timers, sweep_at].into_iter().flatten().min();
        tokio::select! {
            biased;
            () = close.cancelled() => return,
            () = here.starts.changed() => {}
            () = here.timers.changed() => {}
            () = sleep(wake) => {}
        }
    }
}

/// Lets the entities end that have been idle for the longest time.
fn evict(regions: &RegionMap, count: usize, now: Instant) {
    let mut idle = Vec::new();
    for region in regions.all() {
        let mut found = Vec::new();
        region.idle(now, &mut found);
        idle.extend(
            found.into_iter().map(|(since, shard, id)| (since, Arc::clone(&region), shard, id)),
        );
    }
    idle.sort_unstable_by(|(one, ..), (other, ..)| other.cmp(one));
    for (_, region, shard, id) in idle.into_iter().take(count) {
        region.evict(shard, &id, now);
    }
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
