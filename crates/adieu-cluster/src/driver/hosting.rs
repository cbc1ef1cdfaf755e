//! Opens, drains, kills and hands over the shards of regions, as the machine of the node has decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use adieu_core::Short;

use crate::node::Node;
use crate::proposal::Wake;
use crate::records::{RegionKind, ShardId};
use crate::region::{Held, ShardState};
use crate::regions::{Hosted, Inbox};
use crate::shared::{DrainTime, Shared};
use crate::store::Revision;
use crate::time::{Duration, Instant};
use crate::transport::{NO_LINKS, Peer};

/// The longest drain of a shard that moves while this node stays. No deadline limits such a move,
/// so it waits for slow handlers. But messages to the shard are kept meanwhile, so a handler that
/// never ends must not hold it for ever.
const MOVE: Duration = Duration::from_secs(60);

/// How often a shard that moves logs what it waits for.
const LOG_MOVE: Duration = Duration::from_secs(10);

/// The shards of regions on this node.
pub(super) struct Hosting {
    shared: Arc<Shared>,
    /// The revision of the view that the regions have last seen.
    seen: Option<Revision>,
    draining: BTreeMap<ShardId, Draining>,
    is_lost: bool,
    /// Whether it was logged that this node has no links, although it needs some.
    is_unlinked: bool,
}

struct Draining {
    epoch: Revision,
    /// When its drain began, if the shard moves while this node stays.
    moves_since: Option<Instant>,
    log_at: Instant,
    kill_at: Instant,
    is_killed: bool,
}

// === impl Hosting ===

impl Hosting {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            seen: None,
            draining: BTreeMap::new(),
            is_lost: false,
            is_unlinked: false,
        }
    }

    /// Brings the regions in line with the machine.
    pub(super) fn reconcile(
        &mut self,
        node: &mut Node,
        is_good: bool,
        now: Instant,
        wake: &mut Wake,
    ) {
        let Some(me) = node.me() else { return };
        if !is_good {
            return self.lose();
        }
        self.connect(Peer { id: me.id.clone(), incarnation: me.incarnation });
        let held: BTreeMap<ShardId, Held> =
            node.held().map(|(shard, held)| (shard.clone(), held)).collect();
        if self.seen != Some(node.view().revision) {
            self.seen = Some(node.view().revision);
            self.shared.here.see(me.incarnation, node.view());
            for region in self.shared.regions.all() {
                let mine = held.iter().filter(|(shard, _)| shard.region == *region.name());
                let mine = mine.map(|(shard, held)| (shard.number, held.epoch)).collect();
                region.see(node.view(), &mine);
            }
            self.check_links(node);
        }
        let shared = &self.shared;
        self.draining.retain(|shard, draining| {
            let is_mine = held.get(shard).is_some_and(|held| held.epoch == draining.epoch);
            if let Some(since) = draining.moves_since.filter(|_| !is_mine) {
                shared.log_moved(shard, node, now.duration_since(since));
            }
            is_mine
        });
        for (shard, held) in held {
            if held.state == ShardState::Closing {
                self.drain(node, &shard, held.epoch, now, wake);
            }
        }
    }

    /// Starts to receive messages, once this node is in the table.
    fn connect(&self, me: Peer) {
        let shared = &self.shared;
        let (Some(carrier), Some(runtime)) = (&shared.carrier, shared.runtime.get()) else {
            return;
        };
        if shared.here.transport.get().is_none() {
            let (here, regions) = (Arc::clone(&shared.here), Arc::clone(&shared.regions));
            carrier.start(&me, runtime, Arc::new(Inbox { here, regions }));
            let _ = shared.here.transport.set(Arc::clone(carrier).into_transport());
        }
    }

    /// Logs once that this node has regions and no links, although there are other nodes.
    fn check_links(&mut self, node: &Node) {
        if !self.is_unlinked && self.shared.lacks_links(node.view()) {
            self.is_unlinked = true;
            let (cluster, node) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
            self.shared.log(move || {
                tracing::warn!(%cluster, %node, advice = NO_LINKS, "no links to other nodes");
            });
        }
    }

    fn drain(
        &mut self,
        node: &mut Node,
        shard: &ShardId,
        epoch: Revision,
        now: Instant,
        wake: &mut Wake,
    ) {
        let Some(region) = self.shared.regions.get(&shard.region) else { return };
        let time = self.shared.drain_time(region.config().kind);
        let own = DrainTime { begun: now, nested_until: now + MOVE / 2, kill_at: now + MOVE };
        let draining = self.draining.entry(shard.clone()).or_insert_with(|| {
            let moves_since = time.is_none().then_some(now);
            let time = time.unwrap_or(own);
            region.drain(shard.number, time.nested_until);
            let log_at = now + LOG_MOVE;
            Draining { epoch, moves_since, log_at, kill_at: time.kill_at, is_killed: false }
        });
        if let Some(time) = time {
            draining.kill_at = draining.kill_at.min(time.kill_at);
        }
        let is_due = draining.kill_at <= now || self.shared.kill.is_cancelled();
        if is_due && !draining.is_killed {
            draining.is_killed = true;
            let killed = region.kill(shard.number);
            self.shared.report_killed(shard, killed);
        }
        if region.hand_over(shard.number) {
            node.drained(shard, epoch);
        } else if !draining.is_killed {
            if let Some(since) = draining.moves_since {
                if draining.log_at <= now {
                    draining.log_at = now + LOG_MOVE;
                    let took = now.saturating_duration_since(since);
                    self.shared.log_move_waits(shard, &*region, (now, took));
                }
                wake.at(draining.log_at);
            }
            wake.at(draining.kill_at);
        }
    }

    /// Drops every entity, because this node may no longer act.
    pub(super) fn lose(&mut self) {
        if !std::mem::replace(&mut self.is_lost, true) {
            for region in self.shared.regions.all() {
                self.shared.report_dropped(region.name(), region.lose());
            }
        }
    }
}

/// Ends what this node sends: its links, and then every message that still has no outcome.
pub(super) async fn close(shared: &Shared, within: Duration) {
    let regions = shared.regions.all();
    regions.iter().for_each(|region| region.close());
    if let Some(transport) = shared.here.transport.get()
        && tokio::time::timeout(within, transport.close()).await.is_err()
    {
        let cluster = Arc::clone(&shared.cluster);
        shared.log(move || {
            tracing::warn!(%cluster, ?within, "links to other nodes did not end in time");
        });
    }
    // An entity that cannot be stopped sends no reply, and its deadlines are no longer kept.
    regions.iter().for_each(|region| region.abandon());
}

impl Shared {
    /// Logs what a shard that is to be moved waits for.
    fn log_move_waits(
        &self,
        shard: &ShardId,
        region: &dyn Hosted,
        (now, took): (Instant, Duration),
    ) {
        let waits_for = match region.busiest(shard.number, now) {
            Some((id, busy)) => format!("{id} busy {}", Short(busy)),
            None => format!("{} passes", region.passes(shard.number)),
        };
        let (cluster, shard) = (Arc::clone(&self.cluster), shard.to_string());
        let (took, killed_after) = (Short(took).to_string(), Short(MOVE).to_string());
        self.log(move || {
            tracing::warn!(
                %cluster, shard, waits_for, took, killed_after, "shard still draining"
            );
        });
    }

    /// Logs that a shard has been moved. A node that leaves reports its hand-off as a whole.
    fn log_moved(&self, shard: &ShardId, node: &Node, took: Duration) {
        let owner = node.view().shards.get(shard).and_then(|it| it.value.ownership());
        let to = owner.map_or_else(|| "no node".to_owned(), |it| it.owner.to_string());
        let (cluster, shard, took) =
            (Arc::clone(&self.cluster), shard.to_string(), Short(took).to_string());
        self.log(move || tracing::info!(%cluster, shard, to, took, "shard moved"));
    }

    /// Returns by when the shards of a kind of region must be drained, if this node leaves.
    fn drain_time(&self, kind: RegionKind) -> Option<DrainTime> {
        let times = self.drain_times();
        match kind {
            RegionKind::Region => times.regions,
            RegionKind::Singleton => times.singletons,
        }
    }
}
