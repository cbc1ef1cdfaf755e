//! The deadlines of the asks that went straight into mailboxes of a shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::after::After;
use crate::entity::letter::Letter;
use crate::entity::mailbox::Slot;
use crate::entity::reply::Outlet;
use crate::message::{Command, Unknown};
use crate::time::Instant;
use crate::transport::{MessageId, Refusal};

/// With fewer asks than this, ended ones are not searched for.
const FEW: usize = 64;

/// Asks by their deadlines.
///
/// An ask that has ended is not removed at once, because that would need the lock of the shard.
/// Those at the front are removed when the next ask is added, and all others when the number of
/// asks has doubled since the last search. So at most twice as many are kept as are in progress,
/// and a few more.
pub(super) struct Deadlines<C: Command> {
    /// Most asks have the same time, so a new one is usually the last.
    in_order: VecDeque<Deadline<C>>,
    /// Asks that were added after one with a later deadline.
    early: BTreeMap<(Instant, u64), Deadline<C>>,
    /// Numbers the early ones.
    sequence: u64,
    /// Ended asks are looked for when there are this many.
    sweep_at: usize,
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
        Self { in_order: VecDeque::new(), early: BTreeMap::new(), sequence: 0, sweep_at: FEW }
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
        self.forget_first();
        if self.len() >= self.sweep_at {
            self.in_order.retain(Deadline::is_waiting);
            self.early.retain(|_, ask| ask.is_waiting());
            self.sweep_at = FEW.max(2 * self.len());
        }
        let ask = Deadline { at, id, slot, outlet };
        if self.in_order.back().is_none_or(|last| last.at <= at) {
            self.in_order.push_back(ask);
        } else {
            self.sequence += 1;
            self.early.insert((at, self.sequence), ask);
        }
    }

    fn len(&self) -> usize {
        self.in_order.len() + self.early.len()
    }

    /// Removes the first asks, as far as they have ended.
    fn forget_first(&mut self) {
        while self.in_order.front().is_some_and(|ask| !ask.is_waiting()) {
            self.in_order.pop_front();
        }
        while let Some(entry) = self.early.first_entry().filter(|entry| !entry.get().is_waiting()) {
            entry.remove();
        }
    }

    pub(super) fn first(&self) -> Option<Instant> {
        let early = self.early.first_key_value().map(|((at, _), _)| *at);
        self.in_order.front().map(|ask| ask.at).into_iter().chain(early).min()
    }

    /// Removes the ask with the first deadline, if that has passed.
    fn pop(&mut self, now: Instant) -> Option<Deadline<C>> {
        let first = self.first().filter(|at| *at <= now)?;
        match self.early.first_entry().filter(|entry| entry.key().0 == first) {
            Some(early) => Some(early.remove()),
            None => self.in_order.pop_front(),
        }
    }

    /// Ends the asks whose deadline has passed. One that no instance has opened did not run.
    pub(super) fn expire(&mut self, now: Instant, after: &mut After<C>) {
        self.forget_first();
        while let Some(ask) = self.pop(now) {
            ask.end(Refusal::Expired, Unknown::Expired, after);
        }
        self.forget_first();
    }

    /// Ends all asks, because this node will not call again at their deadlines.
    pub(super) fn abandon(&mut self, why: &Unknown, after: &mut After<C>) {
        let early = std::mem::take(&mut self.early).into_values();
        for ask in self.in_order.drain(..).chain(early) {
            ask.end(Refusal::Moving { newer: None }, why.clone(), after);
        }
    }
}

// === impl Deadline ===

impl<C: Command> Deadline<C> {
    /// Returns whether the ask may be in progress: if it has ended, only this entry still refers to it.
    fn is_waiting(&self) -> bool {
        Arc::strong_count(&self.outlet) > 1
    }

    /// Ends the ask: one that no instance has opened did not run.
    fn end(self, not_run: Refusal, unknown: Unknown, after: &mut After<C>) {
        let Self { id, slot, outlet, .. } = self;
        let letter: Option<Letter<C>> = {
            let mut mailbox = slot.lock();
            let at = mailbox.queue.iter().position(|letter| letter.id == id);
            at.and_then(|at| mailbox.queue.remove(at))
        };
        match letter {
            Some(letter) => after.unopened.push((letter, not_run)),
            None => after.ended.push((outlet, unknown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::entity::mailbox::Pill;
    use crate::entity::reply::{ReplyReceiver, ReplySender, channel};
    use crate::store::Revision;
    use crate::time::{Duration, now};

    #[derive(Serialize, Deserialize)]
    struct Ping;

    impl Command for Ping {
        type Reply = ();
    }

    struct Asks {
        deadlines: Deadlines<Ping>,
        slot: Arc<Slot<Ping>>,
        sequence: u64,
    }

    impl Asks {
        fn new() -> Self {
            let slot = Arc::new(Slot::new("n".into(), Pill::None, now()));
            Self { deadlines: Deadlines::default(), slot, sequence: 0 }
        }

        fn add(&mut self, at: Instant) -> (ReplySender<()>, ReplyReceiver<()>) {
            let (to, reply) = channel();
            self.sequence += 1;
            let id = MessageId { incarnation: Revision::new(1), sequence: self.sequence };
            self.deadlines.add(at, id, Arc::clone(&self.slot), reply.outlet());
            (to, reply)
        }
    }

    #[test]
    fn s1609_ended_asks_are_not_kept_behind_a_slow_one() {
        let (begun, mut asks) = (now(), Asks::new());
        let second = Duration::from_secs(1);
        for slow in [0, 3_600] {
            let _slow = asks.add(begun + second * slow);
            for _ in 0..10_000 {
                drop(asks.add(begun + 5 * second));
                assert!(asks.deadlines.len() <= 2 * FEW, "{} are kept", asks.deadlines.len());
            }
        }
    }

    #[test]
    fn asks_end_in_the_order_of_their_deadlines_however_they_were_added() {
        let (begun, mut asks) = (now(), Asks::new());
        let at = |millis| begun + Duration::from_millis(millis);
        let order = [50, 10, 30, 60, 20, 60, 5, 70];
        let _waiting: Vec<_> = order.map(|millis| asks.add(at(millis))).into();
        let mut sorted = order;
        sorted.sort_unstable();
        for (place, millis) in sorted.into_iter().enumerate() {
            assert_eq!(asks.deadlines.first(), Some(at(millis)), "at {place}");
            asks.deadlines.pop(at(millis)).unwrap();
        }
        assert_eq!(asks.deadlines.first(), None);
    }
}
