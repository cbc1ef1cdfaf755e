//! The messages of an actor of ractor: sent, begun, handled; and whether it is idle.

#[cfg(not(adieu_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(adieu_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// How many messages were sent to an actor, and how many handlers have begun and returned.
///
/// # Why a drain misses no work
///
/// A drain checks all actors in two passes. It is over when both find each actor idle, with the same
/// number of begun handlers. Senders increment `sent` sequentially consistently, because that takes
/// part in the protocol of `Admission`. Only the actor's own task stores `begun` and `handled`, and
/// release stores suffice:
///
/// - A handler increments `sent` of other actors between its stores of `begun` and `handled`. So a
///   drain that loads `handled` observes every send of the handlers that it counts.
/// - A drain that loads `begun` observes the sends of the messages that it counts. If it then loads
///   no larger number from `sent`, the messages that it observes as sent and as begun are the same.
/// - Let a message M be observed as begun in the first pass, and let its handler send N. The actor of M
///   was idle, so the handler is observed as returned, and N as sent. In the second pass the actor of
///   N is idle, so N is observed as begun. The number is the same, so N was observed as begun in the
///   first pass, too. By induction that holds for all messages that M causes.
///
/// The last step holds only if the number is the one that the actor was found idle with: if it was
/// loaded later, a handler could begin in between.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// How many handlers have returned.
    handled: AtomicU64,
    /// How many handlers have begun.
    begun: AtomicU64,
    /// How many messages were sent through a [`Ref`](super::Ref), without messages that were refused
    /// before the actor had ended.
    sent: AtomicU64,
}

// === impl Counters ===

impl Counters {
    /// Counts a message that is about to be sent.
    #[inline]
    pub(super) fn begin_send(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Uncounts a message that was refused.
    pub(super) fn cancel_send(&self) {
        self.sent.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a handler that begins. Returns whether it is the first. Only the actor calls it.
    #[inline]
    pub(super) fn handler_begins(&self) -> bool {
        let before = self.begun.load(Ordering::Relaxed);
        self.begun.store(before + 1, Ordering::Release);
        before == 0
    }

    /// Counts a handler that has returned. Only the actor calls it.
    #[inline]
    pub(super) fn handler_returned(&self) {
        self.handled.store(self.handled.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Returns how many messages were sent, and no handler has begun for them. The actor has ended.
    //
    // A message through ractor's own reference may have been handled in place of one through a `Ref`:
    // then this is a lower bound.
    pub(super) fn left_behind(&self) -> u64 {
        let begun = self.begun.load(Ordering::Acquire);
        self.sent.load(Ordering::SeqCst).saturating_sub(begun)
    }

    /// Returns the number of begun handlers, if all have returned and no message waits for one.
    pub(super) fn idle(&self) -> Option<u64> {
        // The order of the loads matters: a message is sent, then its handler begins, then it returns.
        let handled = self.handled.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        let is_idle = begun == handled && self.sent.load(Ordering::SeqCst) <= begun;
        is_idle.then_some(begun)
    }
}

#[cfg(all(test, adieu_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Passes one message between two actors a few times, while a drain makes two passes.
    fn drain_while_a_message_moves(first: usize) {
        loom::model(move || {
            let actors = Arc::new([Counters::default(), Counters::default()]);
            let is_over = Arc::new(AtomicBool::new(false));
            actors[first].begin_send();
            let worker = loom::thread::spawn({
                let (actors, is_over) = (Arc::clone(&actors), Arc::clone(&is_over));
                move || {
                    const MOVES: usize = 4;
                    for step in 0..MOVES {
                        let (at, next) =
                            (&actors[(first + step) % 2], &actors[(first + step + 1) % 2]);
                        at.handler_begins();
                        if step + 1 == MOVES {
                            is_over.store(true, Ordering::Relaxed);
                        } else {
                            next.begin_send();
                        }
                        at.handler_returned();
                    }
                }
            });
            let pass = || [actors[0].idle(), actors[1].idle()];
            let (before, after) = (pass(), pass());
            if before == after && !before.contains(&None) {
                assert!(is_over.load(Ordering::Relaxed), "found idle: {before:?}");
            }
            worker.join().unwrap();
        });
    }

    #[test]
    fn loom_actors_are_not_idle_while_a_message_moves_between_them() {
        drain_while_a_message_moves(0);
        drain_while_a_message_moves(1);
    }
}
