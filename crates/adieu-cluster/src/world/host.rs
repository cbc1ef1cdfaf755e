//! The messages that a simulated process sends and handles: its routes, its shards and their
//! entities.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::ledger::Key;
use crate::records::ShardId;
use crate::region::{Admission, Arrival};
use crate::route::{Kind, Repeats, Route, Unknown};
use crate::rules::Rules;
use crate::store::Revision;
use crate::transport::MessageId;

/// The messages of one process.
#[derive(Default)]
pub(super) struct Host {
    pub(super) rules: Rules,
    /// The number of the last message.
    pub(super) sequence: u64,
    pub(super) routes: BTreeMap<ShardId, Route>,
    /// The messages that have no outcome yet.
    pub(super) sent: BTreeMap<u64, Sent>,
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// Numbers the handlers.
    pub(super) tokens: u64,
    pub(super) is_lost: bool,
    /// The revision of the view that routes and shards have seen.
    pub(super) seen: Option<Revision>,
    pub(super) has_ended: bool,
    pub(super) wake_at: Option<super::Time>,
}

/// A message of this process.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) shard: ShardId,
    pub(super) entity: u8,
    pub(super) kind: Kind,
    pub(super) is_nested: bool,
    pub(super) deadline: Instant,
    /// How many further messages its handler sends, each from the handler of the one before.
    pub(super) nests: u8,
    /// The handler that waits for it.
    pub(super) parent: Option<(ShardId, u8, u64)>,
    /// The attempts of an idempotent ask.
    pub(super) repeats: Repeats<Unknown>,
}

/// A message at the process that owns its shard.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    pub(super) from: usize,
    pub(super) id: u64,
    pub(super) generation: u32,
    /// Whether its sender is this process, and waits without a route.
    pub(super) is_direct: bool,
    pub(super) shard: ShardId,
    pub(super) epoch: Revision,
    pub(super) entity: u8,
    pub(super) kind: Kind,
    pub(super) is_nested: bool,
    /// Deadlines travel as the remaining time.
    pub(super) remaining: Duration,
    pub(super) deadline: Option<Instant>,
    pub(super) nests: u8,
}

/// A shard at a process.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) admission: Admission,
    pub(super) held: BTreeMap<MessageId, Mail>,
    pub(super) entities: BTreeMap<u8, Mailbox>,
    /// When what still runs in it is ended.
    pub(super) kill_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) queue: VecDeque<Mail>,
    pub(super) hand: Option<Hand>,
}

/// A handler at work.
pub(super) struct Hand {
    pub(super) mail: Mail,
    pub(super) token: u64,
    /// The message that it waits for.
    pub(super) awaits: Option<u64>,
}

// === impl Host ===

impl Host {
    pub(super) fn shard(&mut self, shard: &ShardId) -> &mut Shard {
        if !self.shards.contains_key(shard) {
            let admission = Admission::new(self.rules);
            self.shards.insert(shard.clone(), Shard { admission, ..Shard::default() });
        }
        self.shards.get_mut(shard).expect("it was inserted")
    }

    pub(super) fn mailbox(&mut self, shard: &ShardId, entity: u8) -> Option<&mut Mailbox> {
        self.shards.get_mut(shard)?.entities.get_mut(&entity)
    }

    /// Returns the shards in which a handler is at work.
    pub(super) fn at_work(&self) -> impl Iterator<Item = (&ShardId, Revision)> {
        let hands = self.shards.iter().flat_map(|(id, shard)| {
            shard.entities.values().filter_map(move |it| Some((id, it.hand.as_ref()?)))
        });
        hands.map(|(id, hand)| (id, hand.mail.epoch))
    }

    /// Returns the next instant at which a timer is due.
    pub(super) fn wake(&self) -> Option<Instant> {
        let routes = self.routes.values().filter_map(Route::wake);
        let shards = self.shards.values().flat_map(|it| [it.admission.wake(), it.kill_at]);
        routes.chain(shards.flatten()).min()
    }
}

// === impl Mail ===

impl Mail {
    pub(super) fn key(&self) -> Key {
        (self.from, self.id)
    }

    pub(super) fn arrival(&self, now: Instant) -> Arrival {
        let Self { epoch, is_nested, .. } = *self;
        let deadline = self.deadline.unwrap_or(now + self.remaining);
        Arrival { id: self.message_id(), epoch, is_nested, deadline }
    }

    fn message_id(&self) -> MessageId {
        MessageId { incarnation: Revision::new(self.from as u64 + 1), sequence: self.id }
    }
}
