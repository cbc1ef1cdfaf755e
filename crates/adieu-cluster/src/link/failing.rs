//! Tracks the peers that cannot be reached, and decides when that is logged. Pure: the time is an
//! argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::time::{Duration, Instant};
use crate::transport::{FailingLink, Peer};

/// A peer that is not dialled for this long is no longer shown: nothing is to be sent to it.
const FORGET: Duration = Duration::from_secs(30);

/// A peer that fails again is not logged again sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// The peers that cannot be reached.
#[derive(Debug, Default)]
pub(super) struct Failing {
    peers: BTreeMap<Peer, Entry>,
}

#[derive(Debug)]
struct Entry {
    address: Arc<str>,
    /// The beginning of the time in which no link has lasted.
    since: Instant,
    failed_at: Instant,
    why: String,
    /// A link is open, which may end soon again.
    is_open: bool,
    /// Whether the failure was logged, and its end was not.
    is_logged: bool,
    logged_at: Option<Instant>,
}

// === impl Failing ===

impl Failing {
    /// An attempt to reach a peer failed, or its link ended soon. Returns for how long the peer has been
    /// failing, if that is to be logged: once, after `long`.
    pub(super) fn failed(
        &mut self,
        peer: &Peer,
        address: &Arc<str>,
        why: &str,
        long: Duration,
        now: Instant,
    ) -> Option<Duration> {
        self.forget(now);
        let entry = self.peers.entry(peer.clone()).or_insert_with(|| Entry {
            address: Arc::clone(address),
            since: now,
            failed_at: now,
            why: String::new(),
            is_open: false,
            is_logged: false,
            logged_at: None,
        });
        entry.address = Arc::clone(address);
        entry.failed_at = now;
        entry.is_open = false;
        why.clone_into(&mut entry.why);
        let failing_for = now.saturating_duration_since(entry.since);
        let is_due = entry.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= AGAIN);
        if failing_for < long || entry.is_logged || !is_due {
            return None;
        }
        (entry.is_logged, entry.logged_at) = (true, Some(now));
        Some(failing_for)
    }

    /// A peer has accepted a link. Returns whether its recovery is to be logged.
    pub(super) fn opened(&mut self, peer: &Peer) -> bool {
        let Some(entry) = self.peers.get_mut(peer) else { return false };
        entry.is_open = true;
        std::mem::take(&mut entry.is_logged)
    }

    /// A link to a peer has lasted.
    pub(super) fn lasted(&mut self, peer: &Peer) {
        self.peers.remove(peer);
    }

    /// Returns the peers that cannot be reached now.
    pub(super) fn all(&self, now: Instant) -> Vec<FailingLink> {
        let shown = self.peers.iter().filter(|(_, entry)| !entry.is_open && !entry.is_old(now));
        let shown = shown.map(|(peer, entry)| FailingLink {
            peer: peer.clone(),
            address: Arc::clone(&entry.address),
            since: entry.since,
            why: entry.why.clone(),
        });
        shown.collect()
    }

    fn forget(&mut self, now: Instant) {
        self.peers.retain(|_, entry| entry.is_open || !entry.is_old(now));
    }
}

impl Entry {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.failed_at) >= FORGET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::NodeId;
    use crate::store::Revision;

    const LONG: Duration = Duration::from_secs(5);

    fn fails(failing: &mut Failing, peer: &Peer, at: Instant) -> Option<Duration> {
        failing.failed(peer, &"h:1".into(), "refused", LONG, at)
    }

    #[test]
    fn s1627_a_peer_that_cannot_be_reached_is_logged_once_and_shown_while_it_is_dialled() {
        let (mut failing, begun) = (Failing::default(), crate::time::now());
        let peer = Peer { id: NodeId::new("b").unwrap(), incarnation: Revision::new(7) };
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(fails(&mut failing, &peer, at(0)), None);
        assert_eq!(fails(&mut failing, &peer, at(4)), None);
        assert_eq!(fails(&mut failing, &peer, at(6)), Some(Duration::from_secs(6)));
        assert_eq!(fails(&mut failing, &peer, at(8)), None);
        let shown = failing.all(at(9));
        assert_eq!((shown.len(), &*shown[0].why, shown[0].since), (1, "refused", at(0)));

        // It recovers, and its link ends at once: the log does not repeat that each time.
        assert!(failing.opened(&peer));
        assert_eq!(failing.all(at(9)), []);
        assert_eq!(fails(&mut failing, &peer, at(10)), None);
        assert!(!failing.opened(&peer));
        assert_eq!(fails(&mut failing, &peer, at(30)), None);
        assert_eq!(fails(&mut failing, &peer, at(59)), None);
        assert_eq!(fails(&mut failing, &peer, at(67)), Some(Duration::from_secs(67)));

        // A link that lasts ends the failure, and so does a peer that is no longer dialled.
        assert!(failing.opened(&peer));
        failing.lasted(&peer);
        assert_eq!(fails(&mut failing, &peer, at(100)), None);
        assert_eq!(failing.all(at(101))[0].since, at(100));
        assert_eq!(failing.all(at(131)), []);
    }
}
