//! The links between simulated processes: in order, with delays, and ends of every kind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::host::Mail;
use super::{MILLI, Time};
use crate::transport::Event as Fate;

/// Why a connection returns what it never sent.
pub(super) const REFUSED: &str = "connection refused";

/// A link from a sender to a receiver. Envelopes go one way, answers the other.
#[derive(Default)]
pub(super) struct Link {
    /// The number of the connection. Messages of an earlier connection have no effect on this one.
    pub(super) generation: u32,
    pub(super) state: LinkState,
    /// The envelopes without a final answer, in the order in which they were sent.
    pub(super) pending: VecDeque<Pending>,
    /// The envelopes that cannot be sent yet, because a suspended sender has not noticed that the
    /// connection is up.
    pub(super) unsent: VecDeque<(u64, Mail)>,
    /// The reports still to be made about envelopes of ended connections, in order. Until then the
    /// link accepts nothing.
    pub(super) ending: VecDeque<(u64, Fate)>,
    sent: u64,
    /// The envelopes that their sender has taken back: a connection and a place on it.
    taken_back: BTreeSet<(u32, u64)>,
    /// The last envelope that the receiver has read, and on which connection.
    pub(super) read: (u32, u64),
    /// The connections whose envelopes are no longer read.
    pub(super) unread: BTreeSet<u32>,
    there: Time,
    back: Time,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LinkState {
    #[default]
    Idle,
    Dials,
    Up,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Its place on this connection.
    pub(super) number: u64,
    pub(super) id: u64,
}

/// The faults between processes.
#[derive(Default)]
pub(super) struct Network {
    pub(super) links: BTreeMap<(usize, usize), Link>,
    pub(super) cuts: BTreeSet<(usize, usize)>,
    /// The longest usual delay.
    pub(super) slowest: Time,
}

// === impl Network ===

impl Network {
    pub(super) fn link(&mut self, from: usize, to: usize) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from.min(to), from.max(to)))
    }

    /// Takes a message of this process back, if it was not sent on any connection.
    pub(super) fn take_back(&mut self, from: usize, id: u64) -> bool {
        self.links.range_mut((from, 0)..(from + 1, 0)).any(|(_, link)| link.take_back(id))
    }

    pub(super) fn delay(&self, rng: &mut fastrand::Rng) -> Time {
        rng.u64(MILLI / 10..MILLI / 5 + self.slowest)
    }
}

// === impl Link ===

impl Link {
    /// Takes an envelope. Returns its place.
    pub(super) fn push(&mut self, id: u64) -> u64 {
        self.sent += 1;
        self.pending.push_back(Pending { number: self.sent, id });
        self.sent
    }

    fn take_back(&mut self, id: u64) -> bool {
        let refused = |(of, fate): &(u64, Fate)| {
            *of == id && matches!(fate, Fate::Returned(why) if why == REFUSED)
        };
        if self.ending.iter().any(refused) {
            return true;
        }
        let place = self.pending.iter().position(|pending| pending.id == id);
        let Some(place) = place.filter(|_| self.state == LinkState::Dials) else { return false };
        let number = self.pending.remove(place).map(|pending| pending.number);
        self.taken_back.extend(number.map(|number| (self.generation, number)));
        self.unsent.retain(|(_, mail)| mail.id != id);
        true
    }

    /// Returns whether the sender has taken this envelope back.
    pub(super) fn was_taken_back(&self, generation: u32, number: u64) -> bool {
        self.taken_back.contains(&(generation, number))
    }

    /// Returns when something arrives that takes this long: not before earlier messages.
    pub(super) fn arrives_there(&mut self, at: Time) -> Time {
        self.there = self.there.max(at);
        self.there
    }

    pub(super) fn arrives_back(&mut self, at: Time) -> Time {
        self.back = self.back.max(at);
        self.back
    }

    /// The receiver reads an envelope. Returns whether it counts: a newer connection ends an older
    /// one before its first envelope is read.
    pub(super) fn reads(&mut self, generation: u32, number: u64, keeps_older: bool) -> bool {
        if self.unread.contains(&generation) || (generation < self.read.0 && !keeps_older) {
            return false;
        }
        self.read = self.read.max((generation, number));
        true
    }

    /// The connection ends. Returns the envelopes without a final answer.
    pub(super) fn ends(&mut self) -> VecDeque<Pending> {
        self.generation += 1;
        self.state = LinkState::Idle;
        (self.there, self.back) = (0, 0);
        self.unsent.clear();
        std::mem::take(&mut self.pending)
    }

    /// Returns whether an answer for this envelope is awaited on this connection. A final one ends
    /// the wait.
    pub(super) fn settles(&mut self, generation: u32, id: u64, is_final: bool) -> bool {
        let place = self.pending.iter().position(|pending| pending.id == id);
        let Some(place) = place.filter(|_| generation == self.generation) else { return false };
        if is_final {
            self.pending.remove(place);
        }
        true
    }
}
