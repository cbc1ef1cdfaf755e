//! A region as the driver sees it, without the type of its commands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use adieu_core::adapter::lock;

use super::opening::{OnOpen, open};
use crate::entity::{Core, Killed, Shard, Tally};
use crate::grant::Grant;
use crate::message::Command;
use crate::records::{RegionConfig, ShardId};
use crate::store::Revision;
use crate::time::{Duration, Instant};
use crate::transport::{Answer, Envelope};
use crate::view::View;

/// A region of this node.
pub(crate) struct RegionInner<C: Command> {
    pub(crate) core: Arc<Core<C>>,
    config: RegionConfig,
    shards: Box<[Arc<Shard<C>>]>,
    /// The last view of each shard: the revision of its record, and the epoch of this node.
    seen: Mutex<Vec<(Revision, Option<Revision>)>>,
    on_open: Option<OnOpen>,
}

/// The counts of a region on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionCount {
    pub(crate) entities: usize,
    pub(crate) passes: usize,
    pub(crate) kept: usize,
    pub(crate) outstanding: usize,
    pub(crate) held: usize,
}

/// A region without the type of its commands.
pub(crate) trait Hosted: Send + Sync {
    fn name(&self) -> &Arc<str>;
    fn config(&self) -> RegionConfig;

    /// Returns whether this node runs its entities.
    fn is_hosted(&self) -> bool;

    /// Processes a view, and the epochs under which this node owns shards of this region.
    fn see(&self, view: &View, mine: &BTreeMap<u32, Revision>);

    fn drain(&self, number: u32, nested_until: Instant);

    /// Hands a shard over if it is drained.
    fn hand_over(&self, number: u32) -> bool;

    fn kill(&self, number: u32) -> Vec<Killed>;

    /// Closes the shards for good, because this node has lost its place. Returns the entities that
    /// were dropped, by shard.
    fn lose(&self) -> Vec<(u32, Vec<Killed>)>;

    /// Refuses new messages, because this node is about to leave.
    fn refuse_new(&self);

    /// Stops sending.
    fn close(&self);

    /// Ends every message without an outcome: no further event or timer will end it.
    fn abandon(&self);

    fn receive(&self, envelope: Envelope, answer: Box<dyn Answer>);

    /// Lets entities end that were idle for too long.
    fn end_idle(&self, now: Instant);

    /// After how long an idle entity ends.
    fn idle_after(&self) -> Option<Duration>;

    /// Adds the idle entities: for how long they have been, their shards and ids.
    fn idle(&self, now: Instant, to: &mut Vec<(Duration, u32, Arc<str>)>);

    fn evict(&self, number: u32, id: &str, now: Instant);

    /// Returns the entity of a shard that has been busy for the longest time.
    fn busiest(&self, number: u32, now: Instant) -> Option<(Arc<str>, Duration)>;

    fn count(&self) -> RegionCount;

    /// Returns how many messages of this node with lower numbers have no outcome, and the entities of
    /// the first of them.
    fn unsettled(&self, before: u64, named: usize) -> (usize, Vec<Arc<str>>);

    fn passes(&self, number: u32) -> usize;

    fn tally(&self) -> &Tally;
}

// === impl RegionInner ===

impl<C: Command> RegionInner<C> {
    pub(crate) fn new(core: Core<C>, config: RegionConfig, on_open: Option<OnOpen>) -> Self {
        let core = Arc::new(core);
        let shards = (0..config.shards).map(|number| Shard::new(Arc::clone(&core), number));
        let seen = vec![Default::default(); config.shards as usize];
        Self { shards: shards.collect(), core, config, seen: Mutex::new(seen), on_open }
    }

    pub(super) fn shards(&self) -> u32 {
        self.config.shards
    }

    /// Returns a shard. The number is that of a key, so there is one.
    pub(super) fn shard(&self, number: u32) -> &Shard<C> {
        &self.shards[number as usize]
    }

    fn opened(&self, number: u32) {
        if self.core.is_resident {
            self.shard(number).start_resident(&self.core.name);
        }
        if let Some(on_open) = &self.on_open {
            let (here, shard) = (Arc::clone(&self.core.here), self.shard(number));
            let opens = open(Arc::clone(&here), shard.id(), shard.closing(), Arc::clone(on_open));
            drop(here.spawn(opens));
        }
    }
}

impl<C: Command> Hosted for RegionInner<C> {
    fn name(&self) -> &Arc<str> {
        &self.core.name
    }

    fn config(&self) -> RegionConfig {
        self.config
    }

    fn is_hosted(&self) -> bool {
        self.core.spawner.is_some()
    }

    fn see(&self, view: &View, mine: &BTreeMap<u32, Revision>) {
        let mut opened = Vec::new();
        {
            let mut seen = lock(&self.seen);
            let id = |number| ShardId { region: Arc::clone(&self.core.name), number };
            for (shard, record) in view.shards.range(id(0)..=id(u32::MAX)) {
                let mine = mine.get(&shard.number).copied();
                let Some(seen) = seen.get_mut(shard.number as usize) else { continue };
                if *seen != (record.changed, mine) {
                    *seen = (record.changed, mine);
                    if self.shard(shard.number).see(&Grant::of(Some(record)), mine) {
                        opened.push(shard.number);
                    }
                }
            }
        }
        for number in opened {
            self.opened(number);
        }
    }

    fn drain(&self, number: u32, nested_until: Instant) {
        self.shard(number).drain(nested_until);
    }

    fn hand_over(&self, number: u32) -> bool {
        self.shard(number).hand_over()
    }

    fn kill(&self, number: u32) -> Vec<Killed> {
        self.shard(number).kill()
    }

    fn lose(&self) -> Vec<(u32, Vec<Killed>)> {
        (0..).zip(&self.shards).map(|(number, shard)| (number, shard.lose())).collect()
    }

    fn refuse_new(&self) {
        self.shards.iter().for_each(|shard| shard.refuse_new());
    }

    fn close(&self) {
        self.shards.iter().for_each(|shard| shard.close_route());
        // The application may refer to this region, which would then never be dropped.
        self.core.requests.clear();
    }

    fn abandon(&self) {
        self.shards.iter().for_each(|shard| shard.abandon());
    }

    fn receive(&self, envelope: Envelope, answer: Box<dyn Answer>) {
        match self.shards.get(envelope.shard.number as usize) {
            Some(shard) => shard.receive(envelope, answer),
            None => {
                let problem = format!("there is no shard {}", envelope.shard);
                answer.refuse(crate::transport::Refusal::Unsupported(problem));
            }
        }
    }

    fn end_idle(&self, now: Instant) {
        if let Some(idle) = self.core.idle {
            self.shards.iter().for_each(|shard| shard.end_idle(now, idle));
        }
    }

    fn idle_after(&self) -> Option<Duration> {
        self.core.idle
    }

    fn idle(&self, now: Instant, to: &mut Vec<(Duration, u32, Arc<str>)>) {
        if !self.core.is_resident {
            self.shards.iter().for_each(|shard| shard.idle(now, to));
        }
    }

    fn evict(&self, number: u32, id: &str, now: Instant) {
        self.shard(number).evict(id, now);
    }

    fn busiest(&self, number: u32, now: Instant) -> Option<(Arc<str>, Duration)> {
        self.shard(number).busiest(now)
    }

    fn count(&self) -> RegionCount {
        let mut all = RegionCount::default();
        for shard in &self.shards {
            let count = shard.count();
            all.entities += count.entities;
            all.passes += count.passes;
            all.kept += count.kept;
            all.outstanding += count.outstanding;
            all.held += count.held;
        }
        all
    }

    fn unsettled(&self, before: u64, named: usize) -> (usize, Vec<Arc<str>>) {
        let mut names = Vec::new();
        let counts = self.shards.iter().map(|shard| shard.unsettled(before, named, &mut names));
        (counts.sum(), names)
    }

    fn passes(&self, number: u32) -> usize {
        self.shard(number).count().passes
    }

    fn tally(&self) -> &Tally {
        &self.core.tally
    }
}
