//! The deadlines of the asks that went straight into mailboxes of a shard.

use std::collections::VecDeque;
use std::sync::Arc;

use super::after::After;
use crate::entity::letter::Letter;
use crate::entity::mailbox::Slot;
use crate::entity::reply::Outlet;
use crate::message::Command;
use crate::time::Instant;
use crate::transport::{MessageId, Refusal};

/// Asks by their deadlines. Most asks have the same time, so a new one is usually the last.
pub(super) struct Deadlines<C: Command> {
    asks: VecDeque<Deadline<C>>,
}

struct Deadline<C: Command> {
    at: Instant,
    id: MessageId,
    slot: Arc<Slot<C>>,
    outlet: Arc<Outlet<C::Reply>>,
}

// === impl Deadlines ===

impl<C: Command> Default for Deadlines<C> {
    fn default() -> Self {
        Self { asks: VecDeque::new() }
    }
}

impl<C: Command> Deadlines<C> {
    pub(super) fn add(
        &mut self,
        at: Instant,
        id: MessageId,
        slot: Arc<Slot<C>>,
        outlet: Arc<Outlet<C::Reply>>,
    ) {
        self.forget_ended();
        let after = self.asks.iter().rposition(|ask| ask.at <= at).map_or(0, |last| last + 1);
        self.asks.insert(after, Deadline { at, id, slot, outlet });
    }

    /// Removes the first asks, as far as they have ended: only this entry still refers to them.
    fn forget_ended(&mut self) {
        while self.asks.front().is_some_and(|ask| Arc::strong_count(&ask.outlet) == 1) {
            self.asks.pop_front();
        }
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.asks.front().map(|ask| ask.at)
    }

    /// Ends the asks whose deadline has passed. One that no instance has opened did not run.
    pub(super) fn expire(&mut self, now: Instant, after: &mut After<C>) {
        self.forget_ended();
        while self.asks.front().is_some_and(|ask| ask.at <= now) {
            let Some(Deadline { id, slot, outlet, .. }) = self.asks.pop_front() else { break };
            let letter: Option<Letter<C>> = {
                let mut mailbox = slot.lock();
                let at = mailbox.queue.iter().position(|letter| letter.id == id);
                at.and_then(|at| mailbox.queue.remove(at))
            };
            match letter {
                Some(letter) => after.unopened.push((letter, Refusal::Expired)),
                None => after.expired.push(outlet),
            }
        }
        self.forget_ended();
    }
}
