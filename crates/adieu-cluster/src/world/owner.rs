//! The owner's side of messages in the simulated world: it admits them, and its entities handle them.

use bytes::Bytes;

use super::host::{Hand, Mail, Sent};
use super::traffic::{Signal, shard_of};
use super::{Event, MILLI, State, World};
use crate::records::ShardId;
use crate::region::Decision;
use crate::route::{Kind, NotRun, Outcome, Repeats, Unknown};
use crate::transport::{Event as Fate, Refusal, Reply};

impl World {
    pub(super) fn arrives(&mut self, at: usize, mut mail: Mail) {
        let now = self.local(at);
        let grant = self.grant(at, &mail.shard);
        let mine = self.mine(at, &mail.shard);
        let arrival = mail.arrival(now);
        mail.deadline = Some(arrival.deadline);
        let shard = self.traffic.hosts[at].shard(&mail.shard);
        let mut decided = Vec::new();
        shard.admission.see(grant, mine, now, &mut decided);
        let decision = shard.admission.receive(arrival, now);
        if decision == Decision::Hold {
            shard.held.insert(arrival.id, mail.clone());
        }
        let id = mail.shard.clone();
        self.decided(at, &id, decided);
        match decision {
            Decision::Hold => self.traffic.ledger.count("held"),
            Decision::Admit | Decision::Refuse(_) => self.decide(at, mail, decision),
        }
    }

    pub(super) fn mine(&self, at: usize, shard: &ShardId) -> Option<crate::store::Revision> {
        let node = self.processes[at].node()?;
        node.held().find(|(id, _)| *id == shard).map(|(_, held)| held.epoch)
    }

    pub(super) fn decided(
        &mut self,
        at: usize,
        shard: &ShardId,
        decided: Vec<(crate::transport::MessageId, Decision)>,
    ) {
        for (id, decision) in decided {
            let held = &mut self.traffic.hosts[at].shard(shard).held;
            let mail = held.remove(&id).expect("a decision is about a message that is held");
            self.decide(at, mail, decision);
        }
    }

    pub(super) fn decide(&mut self, at: usize, mail: Mail, decision: Decision) {
        match decision {
            Decision::Admit => {
                self.answer(at, &mail, Fate::Admitted);
                self.admitted(at, mail);
            }
            Decision::Refuse(refusal) => self.answer(at, &mail, Fate::Refused(refusal)),
            Decision::Hold => {}
        }
    }

    pub(super) fn answer(&mut self, at: usize, mail: &Mail, fate: Fate) {
        if mail.is_direct {
            let outcome = match fate {
                Fate::Replied(Reply::Done(reply)) => Outcome::Replied(reply),
                Fate::Replied(Reply::NotRun(why)) => Outcome::NotRun(NotRun::Refused(why)),
                Fate::Replied(Reply::Unknown(why)) => Outcome::Unknown(Unknown::NotReplied(why)),
                _ => return,
            };
            if mail.kind != Kind::Tell && !self.traffic.ledger.has_outcome(mail.key()) {
                self.attempted(at, mail.id, outcome, true);
            }
            return;
        }
        if mail.kind == Kind::Tell && matches!(fate, Fate::Replied(_)) {
            return;
        }
        let (from, id, generation) = (mail.from, mail.id, mail.generation);
        if self.traffic.network.is_cut(from, at) {
            return;
        }
        let delay = self.traffic.network.delay(&mut self.traffic.rng);
        let delay = if from == at { MILLI / 20 } else { delay };
        let link = self.traffic.network.link(from, at);
        if link.generation == generation && (!link.unread.contains(&generation) || from == at) {
            let arrives = link.arrives_back(self.now + delay);
            let answer = Signal::Answer { from, to: at, generation, id, fate };
            self.schedule(arrives, Event::Traffic(answer));
        }
    }

    pub(super) fn admitted(&mut self, at: usize, mail: Mail) {
        if mail.is_direct && mail.kind == Kind::Tell {
            self.attempted(at, mail.id, Outcome::Admitted, true);
        }
        let (shard, entity) = (mail.shard.clone(), mail.entity);
        let host = self.traffic.hosts[at].shard(&shard);
        host.entities.entry(entity).or_default().queue.push_back(mail);
        self.open_next(at, &shard, entity);
    }

    /// The handler of an entity begins with the next message.
    pub(super) fn open_next(&mut self, at: usize, shard: &ShardId, entity: u8) {
        let now = self.local(at);
        let is_good = self.processes[at].node().is_some_and(|node| node.is_good(now));
        if !is_good || self.processes[at].state != State::Running {
            // The guard does not poll the entity. What it has received is dropped when the node
            // notices that it has lost its place.
            return;
        }
        let host = &mut self.traffic.hosts[at];
        let Some(mailbox) = host.mailbox(shard, entity) else { return };
        if mailbox.hand.is_some() {
            return;
        }
        let Some(mail) = mailbox.queue.pop_front() else { return };
        if mail.deadline.is_some_and(|deadline| deadline <= now) {
            host.shard(shard).admission.leave();
            self.traffic.ledger.count("expired in a mailbox");
            if mail.kind == Kind::Tell {
                self.traffic.ledger.killed_by_deadline(mail.key());
            }
            self.answer(at, &mail, Fate::Replied(Reply::NotRun(Refusal::Expired)));
            return self.open_next(at, shard, entity);
        }
        host.tokens += 1;
        let token = host.tokens;
        let name = self.processes[at].name();
        self.note(|| format!("{name}: {shard}/{entity} begins {:?}", mail.key()));
        self.traffic.ledger.ran(mail.key(), shard, mail.epoch);
        let last = if self.traffic.ledger.is_strict { 4 } else { 6 };
        let nested = (mail.nests > 0 && entity < last).then(|| {
            let to = self.traffic.rng.u8(entity + 1..=last);
            Sent {
                shard: shard_of(to),
                entity: to,
                kind: Kind::Ask,
                is_nested: true,
                deadline: mail.deadline.unwrap_or(now),
                nests: mail.nests - 1,
                parent: Some((shard.clone(), entity, token)),
                repeats: Repeats::default(),
            }
        });
        let host = &mut self.traffic.hosts[at];
        let awaits = nested.as_ref().map(|_| host.sequence + 1);
        if let Some(mailbox) = host.mailbox(shard, entity) {
            mailbox.hand = Some(Hand { mail, token, awaits });
        }
        if let Some(nested) = nested {
            self.traffic.ledger.count("nested");
            self.send_message(at, nested);
        } else {
            let takes = self.traffic.rng.u64(0..=self.traffic.handles);
            self.signal(takes, Signal::Handled { at, shard: shard.clone(), entity, token });
        }
    }

    pub(super) fn handled(&mut self, at: usize, shard: &ShardId, entity: u8, token: u64) {
        let now = self.local(at);
        if !self.processes[at].node().is_some_and(|node| node.is_good(now)) {
            return;
        }
        let host = &mut self.traffic.hosts[at];
        let Some(mailbox) = host.mailbox(shard, entity) else { return };
        let Some(hand) = mailbox.hand.take_if(|hand| hand.token == token) else { return };
        host.shard(shard).admission.leave();
        // Some handlers fail after they have begun, so that their asks are repeated.
        let fails = hand.mail.kind == Kind::IdempotentAsk && self.traffic.rng.u8(0..3) > 0;
        let reply = match fails {
            true => {
                self.traffic.ledger.failed(hand.mail.key());
                Reply::Unknown("the handler has failed".to_owned())
            }
            false => Reply::Done(Bytes::new()),
        };
        self.answer(at, &hand.mail, Fate::Replied(reply));
        self.open_next(at, shard, entity);
        self.hand_over(at, shard);
    }

    /// Ends everything in a shard: handlers at once, and what waits does not run.
    pub(super) fn kill(&mut self, at: usize, id: &ShardId, why: &str) {
        let mut sends = Vec::new();
        let Some(shard) = self.traffic.hosts[at].shards.get_mut(id) else { return };
        for mailbox in shard.entities.values_mut() {
            for mail in mailbox.queue.drain(..) {
                let refusal = Refusal::Moving { newer: None };
                sends.push((mail, Fate::Replied(Reply::NotRun(refusal)), None));
            }
            if let Some(hand) = mailbox.hand.take() {
                let fate = Fate::Replied(Reply::Unknown(why.to_owned()));
                sends.push((hand.mail, fate, hand.awaits));
            }
        }
        for _ in &sends {
            shard.admission.leave();
        }
        for (mail, fate, awaits) in sends {
            self.traffic.ledger.killed(mail.key());
            self.answer(at, &mail, fate);
            if let Some(nested) = awaits {
                self.traffic.ledger.excuse((at, nested));
                self.traffic.hosts[at].sent.remove(&nested);
                for route in self.traffic.hosts[at].routes.values_mut() {
                    route.cancel(nested);
                }
            }
        }
    }
}
