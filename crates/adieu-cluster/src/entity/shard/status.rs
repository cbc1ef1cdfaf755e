//! The activity in a shard, for reports and the status.

use std::sync::Arc;

use super::Shard;
use crate::entity::mailbox::{Named, State};
use crate::message::Command;
use crate::time::{Duration, Instant};

/// An entity that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Killed {
    pub(crate) id: Arc<str>,
    /// For how long it had handled the mail in hand; `None` if it had none.
    pub(crate) busy: Option<Duration>,
    /// The asks in its mailbox, which were answered.
    pub(crate) asks: usize,
    /// The tells in its mailbox, which are lost.
    pub(crate) dead_letters: usize,
}

/// The counts of a shard on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardCount {
    pub(crate) entities: usize,
    pub(crate) passes: usize,
    /// The messages that this node keeps until they can be sent.
    pub(crate) kept: usize,
    /// The messages of this node that the owner has not decided about.
    pub(crate) outstanding: usize,
    /// The messages of other nodes that are ahead of this node's view.
    pub(crate) held: usize,
}

impl<C: Command> Shard<C> {
    pub(crate) fn count(&self) -> ShardCount {
        let inner = self.lock();
        ShardCount {
            entities: inner.slots.len(),
            passes: inner.passes,
            kept: inner.route.kept(),
            outstanding: inner.route.outstanding(),
            held: inner.admission.held(),
        }
    }

    /// Returns how many messages of this node with lower numbers have no outcome, and adds their
    /// entities until there are `most`.
    pub(crate) fn unsettled(&self, before: u64, most: usize, to: &mut Vec<Arc<str>>) -> usize {
        let inner = self.lock();
        let sent = inner.sending.iter().filter(|(number, _)| **number < before);
        sent.inspect(|(_, sending)| {
            if to.len() < most && !to.contains(sending.entity()) {
                to.push(Arc::clone(sending.entity()));
            }
        })
        .count()
    }

    /// Returns the entity that has handled one mail for the longest time.
    pub(crate) fn busiest(&self, now: Instant) -> Option<(Arc<str>, Duration)> {
        let inner = self.lock();
        let busy = inner.slots.iter().filter_map(|Named(slot)| {
            let mailbox = slot.lock();
            let is_busy = mailbox.state != State::Idle;
            is_busy.then(|| (slot.name(), now.saturating_duration_since(mailbox.since)))
        });
        busy.chain(inner.running.longest(now)).max_by_key(|(_, busy)| *busy)
    }
}
