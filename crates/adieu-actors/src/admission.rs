//! Decides which messages are accepted: by a system, and by each of its actors.
//!
//! A drain closes admission in two steps. First only actors that are being drained may send, because
//! the work that they have accepted may need other actors. When no actor has work left, admission
//! is closed to all senders.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Open, draining or closed. It only advances.
#[derive(Debug, Default)]
pub(crate) struct Admission(AtomicU8);

/// The part of a system's state that every actor reads for each message.
///
/// It is an allocation of its own. If actors reached it through the system, all of them would write
/// to the system's reference count.
#[derive(Debug, Default)]
pub(crate) struct SystemAdmission {
    pub(crate) state: Admission,
    /// Whether a message was ever sent to an actor. If not, a drain has no work to wait for.
    has_worked: AtomicBool,
}

const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const CLOSED: u8 = 2;

// === impl Admission ===
//
// Sequentially consistent: a sender increments the counter of its messages and then loads this
// state; a drain stores this state and then loads the counters. At least one of a racing pair
// observes the other (Dekker).

impl Admission {
    /// Refuses messages from senders that are not being drained.
    pub(crate) fn begin_drain(&self) {
        self.0.fetch_max(DRAINING, Ordering::SeqCst);
    }

    /// Refuses all messages.
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

// === impl SystemAdmission ===

impl SystemAdmission {
    /// Notes that a message is being sent to an actor.
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
