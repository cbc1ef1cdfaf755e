//! Counts the passes that are inside, without any two threads writing to the same memory.
//!
//! Every thread has a slot of its own in each gate, with two counters that only this thread writes: how
//! often it entered, and how often it left. A pass that enters on one thread and is dropped on another
//! increments one counter on each; only the sums have a meaning.
//!
//! # Why closing is safe
//!
//! 1. `enter` increments, then loads the state. `close` stores the state, then sums. There is a full
//!    barrier between the two steps on both sides (Dekker), so of a racing pair at least one observes
//!    the other: either `enter` sees that the gate is closed, and takes its count back; or `close` sees
//!    the count.
//! 2. No thread may rely on a sum before the barrier of the closing thread is over. So `close` stores
//!    `CLOSING`, executes the barrier, and then stores `CLOSED`. Only a gate in `CLOSED` can be drained.
//!    If the system refuses the barrier, the gate stays in `CLOSING`.
//! 3. A sum reads all `left` counters before any `entered` counter. Each leave that is read has its
//!    enter, and every enter that was cloned from it, before it. So the sum may be too high for a
//!    moment, but is never too low, and "zero" is never false.
//! 4. A closed gate admits only clones of passes that are inside, and while one is inside the sum is not
//!    zero. So zero, seen once in `CLOSED`, is final. It is latched, because a thread that enters too
//!    late may still increment both counters.

use std::sync::OnceLock;

use super::barrier::{self, Mode};
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use crate::thread_index::ThreadIndex;

/// How many threads a segment of slots is for, and how many segments there can be in addition to the
/// first. Threads beyond that share one slot, with atomic adds.
const SEGMENT: usize = if cfg!(adieu_loom) { 2 } else { 64 };
const MORE: usize = if cfg!(adieu_loom) { 0 } else { 63 };

pub(super) struct Counters {
    state: AtomicU32,
    /// Latched; see 4 above.
    drained: AtomicBool,
    /// Whether the gate was opened in [`Mode::Fenced`]. Written only while no other thread has access.
    is_fenced: AtomicBool,
    /// For the first threads, which in most programs are all threads that enter.
    first: [Slot; SEGMENT],
    more: [OnceLock<Box<[Slot; SEGMENT]>>; MORE],
    shared: Slot,
}

/// Whether a gate admits work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Cordoned,
    Closed,
}

/// The state as it is stored. Only `OPEN` admits work after one load. A state changes to a higher one,
/// except when a cordon is removed.
mod stored {
    /// Open in [`Mode::Asymmetric`](super::Mode::Asymmetric).
    pub(super) const OPEN: u32 = 0;
    /// Open in [`Mode::Fenced`](super::Mode::Fenced).
    pub(super) const OPEN_FENCED: u32 = 1;
    pub(super) const CORDONED: u32 = 2;
    /// Admits no work, but threads that saw the gate open may not have been counted yet.
    pub(super) const CLOSING: u32 = 3;
    /// Closed, and everything that was admitted has been counted.
    pub(super) const CLOSED: u32 = 4;
}

/// The counters of one thread in a gate, on a cache line of their own.
#[repr(align(64))]
struct Slot {
    entered: AtomicUsize,
    left: AtomicUsize,
}

// === impl Counters ===

impl Counters {
    pub(super) fn new() -> Self {
        Self::in_mode(barrier::mode())
    }

    fn in_mode(mode: Mode) -> Self {
        Self {
            state: AtomicU32::new(open_in(mode)),
            drained: AtomicBool::new(false),
            is_fenced: AtomicBool::new(mode == Mode::Fenced),
            first: segment(),
            more: [const { OnceLock::new() }; MORE],
            shared: Slot::new(),
        }
    }

    /// Counts one pass in. Returns false, and counts nothing, if the gate is not open.
    #[inline]
    pub(super) fn enter(&self, index: ThreadIndex) -> bool {
        self.add(index, |slot| &slot.entered);
        barrier::light();
        // Pairs with the store in `close` and `cordon`; see 1 above.
        self.state.load(Ordering::Acquire) == stored::OPEN || self.enter_fenced(index)
    }

    /// Continues `enter` after the increment, if the state is not `OPEN`.
    #[cold]
    fn enter_fenced(&self, index: ThreadIndex) -> bool {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Acquire) <= stored::OPEN_FENCED {
            return true;
        }
        self.add(index, |slot| &slot.left);
        false
    }

    /// Counts in a clone of a pass that is inside, whatever the state is.
    pub(super) fn enter_beside(&self, index: ThreadIndex) {
        self.add(index, |slot| &slot.entered);
    }

    /// Returns whether the gate was open a moment ago. Orders nothing, and reads only what `leave`
    /// reads anyway, so that it adds almost no cost to a pass.
    #[inline]
    pub(super) fn looks_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) <= stored::OPEN_FENCED
    }

    /// Counts one pass out. Returns true if the caller must wake the waiters.
    #[inline]
    #[must_use]
    pub(super) fn leave(&self, index: ThreadIndex) -> bool {
        self.add(index, |slot| &slot.left);
        barrier::light();
        // Pairs with the store in `close`: a waiter that sums after it either sees this leave, or this
        // thread sees that it must wake the waiter.
        self.state.load(Ordering::Acquire) != stored::OPEN && self.leave_fenced()
    }

    #[cold]
    fn leave_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Acquire) != stored::OPEN_FENCED
    }

    /// Admits no work from now on. If the system refuses the barrier, the gate never counts as drained.
    pub(super) fn close(&self) {
        self.state.fetch_max(stored::CLOSING, Ordering::SeqCst);
        if barrier::heavy(self.mode()).is_ok() {
            self.state.fetch_max(stored::CLOSED, Ordering::SeqCst);
        }
    }

    /// Admits no work until `uncordon`. Does nothing once the gate is closed.
    pub(super) fn cordon(&self) {
        self.state.fetch_max(stored::CORDONED, Ordering::SeqCst);
        // If it is refused, threads that saw the gate open may enter for a moment longer.
        let _ = barrier::heavy(self.mode());
    }

    pub(super) fn uncordon(&self) -> bool {
        let swapped = self.state.compare_exchange(
            stored::CORDONED,
            open_in(self.mode()),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        swapped.is_ok() || self.state() == State::Open
    }

    fn mode(&self) -> Mode {
        let is_fenced = self.is_fenced.load(Ordering::Relaxed);
        if is_fenced { Mode::Fenced } else { Mode::Asymmetric }
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            stored::OPEN | stored::OPEN_FENCED => State::Open,
            stored::CORDONED => State::Cordoned,
            _ => State::Closed,
        }
    }

    /// Returns whether the system refused the barrier of `close`, so that work may be inside which was not
    /// counted.
    pub(super) fn may_have_missed(&self) -> bool {
        self.state.load(Ordering::Acquire) == stored::CLOSING && barrier::was_refused()
    }

    pub(super) fn is_drained(&self) -> bool {
        if self.drained.load(Ordering::Acquire) {
            return true;
        }
        let is_closed = self.state.load(Ordering::Acquire) == stored::CLOSED;
        let drained = is_closed && self.sum() == 0;
        if drained {
            self.drained.store(true, Ordering::Release);
        }
        drained
    }

    pub(super) fn in_flight(&self) -> usize {
        if self.drained.load(Ordering::Acquire) { 0 } else { self.sum() }
    }

    /// Opens the counters for another gate. They must be drained, and no other thread may have access.
    pub(super) fn reopen(&self) {
        let mode = barrier::mode();
        self.drained.store(false, Ordering::SeqCst);
        self.is_fenced.store(mode == Mode::Fenced, Ordering::SeqCst);
        self.state.store(open_in(mode), Ordering::SeqCst);
    }

    /// Returns how many passes have been counted in so far.
    pub(super) fn entered(&self) -> usize {
        self.count(|slot| &slot.entered)
    }

    /// Returns how many passes are inside. Never too low; see 3 above.
    fn sum(&self) -> usize {
        let left = self.count(|slot| &slot.left);
        let entered = self.count(|slot| &slot.entered);
        entered.wrapping_sub(left)
    }

    fn count(&self, of: fn(&Slot) -> &AtomicUsize) -> usize {
        self.slots().fold(0, |sum: usize, slot| {
            // Acquire: pairs with the store in `add_alone`.
            sum.wrapping_add(of(slot).load(Ordering::Acquire))
        })
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let more = self.more.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter());
        self.first.iter().chain(more).chain([&self.shared])
    }

    #[inline]
    fn add(&self, index: ThreadIndex, counter: impl Fn(&Slot) -> &AtomicUsize) {
        // A thread without a number has one that is far out of bounds.
        match self.first.get(index.get()) {
            Some(slot) => add_alone(counter(slot)),
            None => self.add_elsewhere(index.claimed(), counter),
        }
    }

    #[cold]
    fn add_elsewhere(&self, index: ThreadIndex, counter: impl Fn(&Slot) -> &AtomicUsize) {
        if let Some(slot) = self.first.get(index.get()) {
            return add_alone(counter(slot)); // It has just claimed its number.
        }
        match self.more.get((index.get() / SEGMENT).wrapping_sub(1)) {
            Some(segment_cell) => {
                let slots = segment_cell.get_or_init(|| Box::new(segment()));
                add_alone(counter(&slots[index.get() % SEGMENT]));
            }
            None => {
                counter(&self.shared).fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// Increments a counter that only this thread writes, so a load and a store are enough.
#[inline]
fn add_alone(counter: &AtomicUsize) {
    // Release: a thread that reads this leave sees everything that came before it.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

// === impl Slot ===

impl Slot {
    fn new() -> Self {
        Self { entered: AtomicUsize::new(0), left: AtomicUsize::new(0) }
    }
}

/// Returns how an open gate of this mode is stored.
fn open_in(mode: Mode) -> u32 {
    match mode {
        Mode::Asymmetric => stored::OPEN,
        Mode::Fenced => stored::OPEN_FENCED,
    }
}

fn segment() -> [Slot; SEGMENT] {
    std::array::from_fn(|_| Slot::new())
}

#[cfg(all(test, adieu_loom))]
mod loom_tests;
