//! How envelopes and answers travel between simulated processes, and how links end.

use super::host::Mail;
use super::ledger::BYE;
use super::links::{LinkState, REFUSED};
use super::traffic::{Defect, KEEPALIVE, Signal};
use super::{Event, MILLI, SECOND, State, Time, World};
use crate::transport::Event as Fate;

impl World {
    pub(super) fn transmit(&mut self, to: usize, mut mail: Mail) {
        let (from, is_local) = (mail.from, mail.from == to);
        let is_ending = !self.traffic.network.link(from, to).ending.is_empty();
        if is_ending {
            self.traffic.ledger.count("sent while a link ends");
        }
        if is_ending && self.traffic.defect != Some(Defect::AcceptsWhileEnding) {
            let why = "the link accepts nothing more now".to_owned();
            return self.fate(from, mail.id, Fate::Returned(why));
        }
        let is_cut = self.traffic.network.is_cut(from, to);
        let delay = self.traffic.network.delay(&mut self.traffic.rng);
        let link = self.traffic.network.link(from, to);
        let number = link.push(mail.id);
        mail.generation = link.generation;
        let generation = link.generation;
        if is_cut {
            link.unread.insert(generation);
        }
        match link.state {
            _ if is_local => link.state = LinkState::Up,
            LinkState::Idle => {
                link.state = LinkState::Dials;
                let delay = if is_cut { SECOND } else { delay };
                self.signal(delay, Signal::Dialled { from, to, generation });
            }
            LinkState::Dials | LinkState::Up => {}
        }
        if self.traffic.network.link(from, to).state == LinkState::Up {
            self.traffic.ledger.sent((from, mail.id));
        }
        // Frames that are sent before the connection is up arrive after it is.
        let delay = if is_local { MILLI / 20 } else { 2 * delay };
        let at = self.traffic.network.link(from, to).arrives_there(self.now + delay);
        if !is_cut {
            self.schedule(at, Event::Traffic(Signal::Frame { from, to, number, mail }));
        }
    }

    /// An envelope reaches its receiver, unless its sender still dials.
    pub(super) fn carried(&mut self, from: usize, to: usize, number: u64, mail: Mail) {
        let keeps_older = self.traffic.defect == Some(Defect::OlderLink);
        let link = self.traffic.network.link(from, to);
        if link.was_taken_back(mail.generation, number) {
            return;
        }
        if link.generation == mail.generation && link.state == LinkState::Dials {
            link.unsent.push_back((number, mail));
        } else if link.reads(mail.generation, number, keeps_older) {
            self.arrives(to, mail);
        }
    }

    pub(super) fn dialled(&mut self, from: usize, to: usize, generation: u32) {
        let is_there =
            self.processes[to].state != State::Ended && !self.traffic.network.is_cut(from, to);
        let link = self.traffic.network.link(from, to);
        if link.generation != generation || link.state != LinkState::Dials {
            return;
        }
        if is_there && !link.unread.contains(&generation) {
            link.state = LinkState::Up;
            for pending in &link.pending {
                self.traffic.ledger.sent((from, pending.id));
            }
            for (number, mail) in std::mem::take(&mut link.unsent) {
                self.schedule(self.now, Event::Traffic(Signal::Frame { from, to, number, mail }));
            }
            return;
        }
        link.unread.insert(generation);
        let fate = || Fate::Returned(REFUSED.to_owned());
        let fates = link.ends().into_iter().map(|pending| (pending.id, fate()));
        link.ending.extend(fates);
        self.reports(from, to);
    }

    /// A connection has ended: with a report of the last envelope that was read, or without.
    pub(super) fn ends(&mut self, from: usize, to: usize, generation: u32, read: Option<u64>) {
        let read = read.filter(|_| self.traffic.defect != Some(Defect::NoBye));
        let is_fault = read.is_none() && self.traffic.defect != Some(Defect::NoBye);
        let link = self.traffic.network.link(from, to);
        if link.generation != generation {
            return;
        }
        let fate = |number| match read {
            Some(read) if read < number => Fate::Returned(BYE.to_owned()),
            _ if is_fault => Fate::Lost("reset".to_owned()),
            _ => Fate::Lost(BYE.to_owned()),
        };
        let fates = link.ends().into_iter().map(|pending| (pending.id, fate(pending.number)));
        link.ending.extend(fates);
        self.reports(from, to);
    }

    /// Reports what became of one envelope of a connection that has ended. The sender may do something
    /// else before the next report, for longer than it waits before it sends again.
    pub(super) fn reports(&mut self, from: usize, to: usize) {
        let link = self.traffic.network.link(from, to);
        let Some((id, fate)) = link.ending.front().cloned() else { return };
        self.fate(from, id, fate);
        let link = self.traffic.network.link(from, to);
        link.ending.pop_front();
        if !link.ending.is_empty() {
            let slowest = [MILLI, 10 * MILLI, 100 * MILLI][self.traffic.rng.usize(0..3)];
            let after = self.traffic.rng.u64(0..slowest);
            self.signal(after, Signal::Reports { from, to });
        }
    }

    /// Breaks a connection. The receiver may still read the frames in transit.
    pub(super) fn breaks(&mut self, from: usize, to: usize, notices: Time) {
        let is_lost = self.traffic.rng.bool();
        let link = self.traffic.network.link(from, to);
        if link.state == LinkState::Up && from != to {
            let generation = link.generation;
            if is_lost {
                link.unread.insert(generation);
            }
            self.signal(notices, Signal::Break { from, to, generation });
        }
    }

    /// Two processes cannot reach each other, or can again. Frames in transit are lost.
    pub(super) fn cuts(&mut self, from: usize, to: usize, is_cut: bool) {
        let pair = (from.min(to), from.max(to));
        if from == to {
            return;
        }
        if !is_cut {
            self.traffic.network.cuts.remove(&pair);
            return;
        }
        self.traffic.network.cuts.insert(pair);
        for (from, to) in [(from, to), (to, from)] {
            let notices = self.traffic.rng.u64(0..KEEPALIVE);
            let link = self.traffic.network.link(from, to);
            if link.state == LinkState::Idle {
                continue;
            }
            link.unread.insert(link.generation);
            let generation = link.generation;
            self.signal(notices, Signal::Break { from, to, generation });
        }
    }

    /// The receiver ends a link on which it owes no answer, as it does with idle links.
    pub(super) fn closes_idle(&mut self, from: usize, to: usize) {
        if self.processes.get(to).is_none_or(|it| it.state != State::Running) {
            return;
        }
        let owes = |it: &super::host::Shard| {
            let hands = it.entities.values().filter_map(|it| it.hand.as_ref().map(|it| &it.mail));
            let queues = it.entities.values().flat_map(|it| it.queue.iter());
            hands.chain(queues).chain(it.held.values()).any(|mail| mail.from == from)
        };
        if !self.traffic.hosts[to].shards.values().any(owes) {
            self.says_bye(from, to);
        }
    }

    pub(super) fn says_bye(&mut self, from: usize, to: usize) {
        let is_cut = self.traffic.network.is_cut(from, to);
        let delay = self.traffic.network.delay(&mut self.traffic.rng);
        let link = self.traffic.network.link(from, to);
        if link.state != LinkState::Up || from == to || is_cut {
            return;
        }
        let generation = link.generation;
        link.unread.insert(generation);
        let read = if link.read.0 == generation { link.read.1 } else { 0 };
        let at = link.arrives_back(self.now + delay);
        self.schedule(at, Event::Traffic(Signal::Bye { from, to, generation, read }));
    }
}
