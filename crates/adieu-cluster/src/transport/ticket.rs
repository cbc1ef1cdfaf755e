//! Decides whether an envelope is sent or taken back: exactly one of the two happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const WAITS: u8 = 0;
const SENT: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// Shared by the sender of an envelope and the transport that holds it. The transport sends the
/// envelope only if [`Ticket::send`] succeeds, and the sender knows that it was not sent if
/// [`Ticket::take_back`] succeeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU8>);

// === impl Ticket ===

impl Ticket {
    /// Marks the envelope as sent. Returns false if it was taken back: then it must not be sent.
    pub(crate) fn send(&self) -> bool {
        self.leaves(SENT)
    }

    /// Takes the envelope back. Returns false if it was sent.
    pub(crate) fn take_back(&self) -> bool {
        self.leaves(TAKEN_BACK)
    }

    fn leaves(&self, to: u8) -> bool {
        // Relaxed: only this value decides, and no other memory depends on it.
        let before = self.0.compare_exchange(WAITS, to, Ordering::Relaxed, Ordering::Relaxed);
        before.is_ok() || before == Err(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1820_an_envelope_is_sent_or_taken_back_but_not_both() {
        let ticket = Ticket::default();
        assert!(ticket.clone().take_back() && ticket.take_back());
        assert!(!ticket.send());
        let ticket = Ticket::default();
        assert!(ticket.send() && ticket.send());
        assert!(!ticket.clone().take_back());
    }
}
