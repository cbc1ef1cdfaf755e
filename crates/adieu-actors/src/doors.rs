//! Which messages are still accepted: the doors of a system, and of each of its actors.
//!
//! A drain closes them in two steps. First only actors that are being drained may send, because
//! what they still have to do may need others. When no work is left, each door closes for good.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How far a door is closed. It never opens again.
#[derive(Debug, Default)]
pub(crate) struct Door(AtomicU8);

/// What every actor of a system reads with each message. It is an allocation of its own: reaching
/// the system would cost all actors the same reference count.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    pub(crate) door: Door,
    /// Whether any actor has ever been sent anything. If not, a drain has nothing to wait for.
    has_worked: AtomicBool,
}

const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const CLOSED: u8 = 2;

// === impl Door ===
//
// Sequentially consistent: a sender counts its message and then looks at the door, a drain closes
// the door and then looks at the counts. At least one of the two sees the other.

impl Door {
    /// Closes the door to everything that is not being drained.
    pub(crate) fn begin_drain(&self) {
        self.0.fetch_max(DRAINING, Ordering::SeqCst);
    }

    /// Closes the door for good.
    pub(crate) fn close(&self) {
        self.0.store(CLOSED, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OPEN
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CLOSED
    }
}

// === impl Doors ===

impl Doors {
    /// Notes that an actor has been sent something.
    #[inline]
    pub(crate) fn note_work(&self) {
        if !self.has_worked.load(Ordering::Relaxed) {
            self.has_worked.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn has_worked(&self) -> bool {
        self.has_worked.load(Ordering::SeqCst)
    }
}
