//! Counts who is inside, without any two threads writing to the same place.
//!
//! Every thread has a slot of its own in each gate, with two counters that it alone writes: how
//! often it entered, and how often it left. A pass that is entered on one thread and dropped on
//! another counts up on both; only the sums mean something.
//!
//! # Why closing is safe
//!
//! 1. Who enters counts first and looks at the state after (with a barrier between). Who closes
//!    sets the state first and sums after (with a barrier between). So of a pair that meet, at
//!    least one sees the other: either the one who enters sees that it is closed, and takes its
//!    count back; or the one who closes sees the count.
//! 2. Whoever sums reads all that left before any that entered. Each leave that is read has its
//!    enter, and every enter that was cloned from it, before it; so the sum may be too high for a
//!    moment, but is never too low, and "zero" is never false.
//! 3. Nobody can enter a closed gate but beside somebody who is inside, and then it is not zero.
//!    So zero, seen once after closing, stays. It is latched, because one who comes too late may
//!    still count up and down again.

use std::sync::OnceLock;

use super::barrier;
use super::threads::ThreadIndex;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// How many threads a segment of slots is for, and how many segments there can be besides the
/// first. Threads beyond that share one slot, with atomic adds.
const SEGMENT: usize = if cfg!(adieu_loom) { 2 } else { 64 };
const MORE: usize = if cfg!(adieu_loom) { 0 } else { 63 };

pub(super) struct Counters {
    state: AtomicU32,
    drained: AtomicBool,
    /// For the first threads, which in most programs are all that enter.
    first: [Slot; SEGMENT],
    more: [OnceLock<Box<[Slot; SEGMENT]>>; MORE],
    shared: Slot,
}

/// What of a gate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Cordoned,
    Closed,
}

/// The state as it is stored. Only the first lets anybody pass without a second look; the order is
/// that in which one may follow the other.
mod stored {
    /// Open, and who closes makes all threads pass a barrier.
    pub(super) const OPEN: u32 = 0;
    /// Open, and everybody must fence for themselves.
    pub(super) const OPEN_FENCED: u32 = 1;
    pub(super) const CORDONED: u32 = 2;
    pub(super) const CLOSED: u32 = 3;
}

/// A thread's place in a gate. On a cache line of its own.
#[repr(align(64))]
struct Slot {
    entered: AtomicUsize,
    left: AtomicUsize,
}

// === impl Counters ===

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU32::new(open()),
            drained: AtomicBool::new(false),
            first: segment(),
            more: [const { OnceLock::new() }; MORE],
            shared: Slot::new(),
        }
    }

    /// Counts one in. False, and not counted, if the gate is not open.
    #[inline]
    pub(super) fn enter(&self, index: ThreadIndex) -> bool {
        self.add(index, |slot| &slot.entered);
        barrier::light();
        // Pairs with the store in `shut`: see 1 above.
        self.state.load(Ordering::Acquire) == stored::OPEN || self.enter_fenced(index)
    }

    /// It has been counted in, and it is not simply open.
    #[cold]
    fn enter_fenced(&self, index: ThreadIndex) -> bool {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Acquire) <= stored::OPEN_FENCED {
            return true;
        }
        self.add(index, |slot| &slot.left);
        false
    }

    /// Counts one in beside one that is inside. The gate is not asked.
    pub(super) fn enter_beside(&self, index: ThreadIndex) {
        self.add(index, |slot| &slot.entered);
    }

    /// Counts one out. True if somebody may be waiting for that.
    #[inline]
    #[must_use]
    pub(super) fn leave(&self, index: ThreadIndex) -> bool {
        self.add(index, |slot| &slot.left);
        barrier::light();
        // Pairs with the store in `shut`: who sums after it has either seen us leave, or we see
        // that we must wake them.
        self.state.load(Ordering::Acquire) != stored::OPEN && self.leave_fenced()
    }

    #[cold]
    fn leave_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Acquire) != stored::OPEN_FENCED
    }

    pub(super) fn close(&self) {
        self.shut(stored::CLOSED);
    }

    pub(super) fn cordon(&self) {
        self.shut(stored::CORDONED);
    }

    fn shut(&self, to: u32) {
        // `max`: closed is never cleared, and cordoning a closed gate does nothing.
        self.state.fetch_max(to, Ordering::SeqCst);
        barrier::heavy();
    }

    pub(super) fn uncordon(&self) -> bool {
        let swapped = self.state.compare_exchange(
            stored::CORDONED,
            open(),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        swapped.is_ok() || self.state() == State::Open
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            stored::OPEN | stored::OPEN_FENCED => State::Open,
            stored::CORDONED => State::Cordoned,
            _ => State::Closed,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        if self.drained.load(Ordering::Acquire) {
            return true;
        }
        let drained = self.state() == State::Closed && self.sum() == 0;
        if drained {
            self.drained.store(true, Ordering::Release);
        }
        drained
    }

    pub(super) fn in_flight(&self) -> usize {
        if self.drained.load(Ordering::Acquire) { 0 } else { self.sum() }
    }

    /// Opens it anew for another gate. Only when it is drained and nobody can reach it any more.
    pub(super) fn reopen(&self) {
        self.drained.store(false, Ordering::SeqCst);
        self.state.store(open(), Ordering::SeqCst);
    }

    /// How many have been counted in so far.
    pub(super) fn entered(&self) -> usize {
        self.count(|slot| &slot.entered)
    }

    /// Never too low: see 2 above.
    fn sum(&self) -> usize {
        let left = self.count(|slot| &slot.left);
        let entered = self.count(|slot| &slot.entered);
        entered.wrapping_sub(left)
    }

    fn count(&self, of: fn(&Slot) -> &AtomicUsize) -> usize {
        self.slots().fold(0, |sum: usize, slot| {
            // Acquire: with a leave we see all that came before it.
            sum.wrapping_add(of(slot).load(Ordering::Acquire))
        })
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let more = self.more.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter());
        self.first.iter().chain(more).chain([&self.shared])
    }

    #[inline]
    fn add(&self, index: ThreadIndex, counter: impl Fn(&Slot) -> &AtomicUsize) {
        // A thread that has no number yet has one that is far out of bounds.
        match self.first.get(index.0) {
            Some(slot) => add_alone(counter(slot)),
            None => self.add_elsewhere(index.claimed(), counter),
        }
    }

    #[cold]
    fn add_elsewhere(&self, index: ThreadIndex, counter: impl Fn(&Slot) -> &AtomicUsize) {
        if let Some(slot) = self.first.get(index.0) {
            return add_alone(counter(slot)); // It has just got its number.
        }
        match self.more.get((index.0 / SEGMENT).wrapping_sub(1)) {
            Some(segment_cell) => {
                let slots = segment_cell.get_or_init(|| Box::new(segment()));
                add_alone(counter(&slots[index.0 % SEGMENT]));
            }
            None => {
                counter(&self.shared).fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// This thread alone writes here, so a load and a store do what an atomic add would.
#[inline]
fn add_alone(counter: &AtomicUsize) {
    // Release: whoever reads that we left sees all that came before.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

// === impl Slot ===

impl Slot {
    fn new() -> Self {
        Self { entered: AtomicUsize::new(0), left: AtomicUsize::new(0) }
    }
}

/// How an open gate is stored here.
fn open() -> u32 {
    if barrier::is_asymmetric() { stored::OPEN } else { stored::OPEN_FENCED }
}

fn segment() -> [Slot; SEGMENT] {
    std::array::from_fn(|_| Slot::new())
}

#[cfg(all(test, adieu_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const A: ThreadIndex = ThreadIndex::of(0);
    const B: ThreadIndex = ThreadIndex::of(1);

    // Invariant 3 of the gate. Fails when `enter` looks before it counts.
    #[test]
    fn loom_closed_and_empty_is_final() {
        loom::model(|| {
            let gate = Arc::new(Counters::new());
            let late = thread::spawn({
                let gate = Arc::clone(&gate);
                move || gate.enter(A)
            });
            gate.close();
            let seen_drained = gate.is_drained();
            let entered = late.join().unwrap();
            assert!(!(seen_drained && entered), "entered a drained gate");
            assert_eq!(gate.in_flight(), usize::from(entered));
        });
    }

    // A pass that is cloned on one thread while its parent leaves on another: never zero.
    // Fails when `sum` reads who entered before who left.
    #[test]
    fn loom_a_clone_is_never_missed() {
        loom::model(|| {
            let gate = Arc::new(Counters::new());
            assert!(gate.enter(A));
            gate.close();
            // The one who sums is the spawned one: loom does not try to interrupt the loads of
            // the first thread, and a version of this model that had them there could not fail.
            let sums = thread::spawn({
                let gate = Arc::clone(&gate);
                move || gate.is_drained()
            });
            gate.enter_beside(B); // The clone,
            let _ = gate.leave(B); // and the parent, which was carried here.
            assert!(!sums.join().unwrap(), "the clone is still inside");
            assert_eq!(gate.in_flight(), 1);
        });
    }

    // Whoever leaves last is seen to have left, or sees that it must wake who waits.
    // Fails when `leave` looks before it counts.
    #[test]
    fn loom_the_last_one_out_is_not_missed() {
        loom::model(|| {
            let gate = Arc::new(Counters::new());
            assert!(gate.enter(A));
            let leaver = thread::spawn({
                let gate = Arc::clone(&gate);
                move || gate.leave(A)
            });
            gate.close();
            let seen = gate.is_drained();
            let wakes = leaver.join().unwrap();
            assert!(seen || wakes, "nobody would ever wake who waits");
        });
    }
}
