//! The state of the search, and its successors.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::traffic::Defect;
use crate::grant::Grant;
use crate::records::NodeId;
use crate::region::{Admission, Arrival, Decision};
use crate::route::{Effect, Outcome, Route, Unknown};
use crate::rules::Rules;
use crate::store::Revision;
use crate::transport::{Event, MessageId, Peer, Refusal, Reply};

pub(super) const MESSAGES: usize = 3;
const BYE: &str = "the peer has ended the link";

/// How often each kind of event may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) moves: u8,
    pub(super) leaves: u8,
    pub(super) crashes: u8,
    pub(super) breaks: u8,
    pub(super) kills: u8,
    pub(super) deadlines: u8,
}

/// The record of the shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) owner: usize,
    pub(super) epoch: u64,
    pub(super) changed: u64,
    pub(super) is_moving: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) is_alive: bool,
    pub(super) is_leaving: bool,
    /// The index of the record that it has seen.
    pub(super) seen: usize,
    pub(super) admission: Admission,
    /// Messages that were admitted, and the connection that each came on.
    pub(super) mail: Vec<(u64, u8)>,
    pub(super) held: Vec<(u64, u8)>,
    /// A hand-off that the store has not applied yet: the record that it replaces.
    pub(super) handing: Option<u64>,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) generation: u8,
    pub(super) is_broken: bool,
    /// Envelopes and their epochs. Those of the connection before may still be read.
    pub(super) there: Vec<(u64, u64)>,
    pub(super) older: Vec<(u64, u64)>,
    pub(super) back: Vec<(u64, Back)>,
    pub(super) pending: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Back {
    Admitted,
    Moving {
        newer: Option<(usize, u64)>,
    },
    Expired,
    Done,
    NotRun,
    Unknown,
    /// How many envelopes were not read.
    Bye {
        unread: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Instant,
    pub(super) records: Vec<Record>,
    pub(super) owners: [Owner; 2],
    pub(super) links: [Link; 2],
    pub(super) route: Route,
    pub(super) seen: usize,
    pub(super) asked: u64,
    pub(super) runs: [u8; MESSAGES],
    pub(super) ends: [Option<End>; MESSAGES],
    pub(super) last_ran: u64,
    pub(super) pauses: u8,
    pub(super) had_fault: bool,
    pub(super) left: Budget,
    pub(super) defect: Option<Defect>,
    pub(super) problem: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Done,
    NotRun,
    Unknown,
}

pub(super) type Next = (String, bool, State);

pub(super) fn peer(at: usize) -> Peer {
    let id = NodeId::new(["a", "b"][at]).unwrap();
    Peer { id, incarnation: Revision::new(1) }
}

pub(super) fn grant(record: Record) -> Grant {
    Grant::Owned { owner: peer(record.owner), epoch: Revision::new(record.epoch) }
}

pub(super) fn deadline(id: u64) -> Instant {
    *crate::world::ORIGIN + Duration::from_secs(1_000 * id)
}

// === impl State ===

impl State {
    pub(super) fn new(left: Budget, rules: Rules, defect: Option<Defect>) -> Self {
        let owner = || Owner {
            is_alive: true,
            is_leaving: false,
            seen: 0,
            admission: Admission::new(rules),
            mail: Vec::new(),
            held: Vec::new(),
            handing: None,
        };
        let mut state = Self {
            now: *crate::world::ORIGIN,
            records: vec![Record { owner: 0, epoch: 1, changed: 2, is_moving: false }],
            owners: [owner(), owner()],
            links: [Link::default(), Link::default()],
            route: Route::new(rules),
            seen: 0,
            asked: 0,
            runs: [0; MESSAGES],
            ends: [None; MESSAGES],
            last_ran: 0,
            pauses: 0,
            had_fault: false,
            left,
            defect,
            problem: None,
        };
        state.see(0, 0);
        state.see(1, 0);
        state.route.see(grant(state.records[0]), state.now, &mut Vec::new());
        state
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    pub(super) fn truth(&self) -> Record {
        self.records[self.records.len() - 1]
    }

    pub(super) fn found(&mut self, problem: &'static str) {
        self.problem.get_or_insert(problem);
    }

    // --- the sender ---

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, epoch, id } => {
                    let at = usize::from(to.id != peer(0).id);
                    if self.links[at].is_broken && !self.owners[at].is_alive {
                        self.report(id, Event::Returned("refused".to_owned()));
                    } else {
                        let link = &mut self.links[at];
                        link.is_broken = false;
                        link.there.push((id, epoch.get()));
                        link.pending.push(id);
                    }
                }
                Effect::Finish { id, outcome } => self.ended(id, &outcome),
            }
        }
    }

    pub(super) fn report(&mut self, id: u64, event: Event) {
        let mut effects = Vec::new();
        self.route.on(id, event, self.now, &mut effects);
        self.carry_out(effects);
    }

    fn ended(&mut self, id: u64, outcome: &Outcome) {
        let (runs, at) = (self.runs[id as usize - 1], id as usize - 1);
        if self.ends[at].is_some() {
            self.found("a message has two outcomes");
        }
        let end = match outcome {
            Outcome::Replied(_) | Outcome::Admitted => {
                if runs != 1 {
                    self.found("replied, and did not run once");
                }
                End::Done
            }
            Outcome::NotRun(_) => {
                if runs > 0 {
                    self.found("reported as not run, and ran");
                }
                End::NotRun
            }
            Outcome::Unknown(why) => {
                if !self.had_fault || *why == Unknown::Lost(BYE.to_owned()) {
                    self.found("unknown without a fault");
                }
                End::Unknown
            }
        };
        self.ends[at] = Some(end);
    }

    /// The sender reads an answer.
    pub(super) fn read_back(&mut self, at: usize) {
        let (id, back) = self.links[at].back.remove(0);
        if let Back::Bye { unread } = back {
            let link = &mut self.links[at];
            let pending = std::mem::take(&mut link.pending);
            // Envelopes that were sent after the end are not read either.
            let unread = unread + link.there.len();
            let read = pending.len() - unread.min(pending.len());
            (link.generation, link.is_broken) = (link.generation + 1, true);
            link.there.clear();
            for (place, id) in pending.into_iter().enumerate() {
                let is_read = place < read || self.defect == Some(Defect::NoBye);
                let event = if is_read { Event::Lost } else { Event::Returned };
                self.report(id, event(BYE.to_owned()));
            }
            return;
        }
        if back != Back::Admitted {
            self.links[at].pending.retain(|pending| *pending != id);
        }
        let event = match back {
            Back::Admitted => Event::Admitted,
            Back::Moving { newer } => {
                let newer = newer.map(|(at, epoch)| (peer(at), Revision::new(epoch)));
                Event::Refused(Refusal::Moving { newer })
            }
            Back::Expired => Event::Refused(Refusal::Expired),
            Back::Done => Event::Replied(Reply::Done(Bytes::new())),
            Back::NotRun => Event::Replied(Reply::NotRun(Refusal::Moving { newer: None })),
            Back::Unknown => Event::Replied(Reply::Unknown("killed".to_owned())),
            Back::Bye { .. } => return,
        };
        self.report(id, event);
    }

    /// The sender notices that a connection is broken.
    pub(super) fn notice(&mut self, at: usize) {
        let link = &mut self.links[at];
        (link.generation, link.is_broken) = (link.generation + 1, true);
        link.back.clear();
        link.there.clear();
        for id in std::mem::take(&mut link.pending) {
            self.report(id, Event::Lost("reset".to_owned()));
        }
    }

    // --- the owners ---

    /// An owner sees a record.
    pub(super) fn see(&mut self, at: usize, seen: usize) {
        let record = self.records[seen];
        let owner = &mut self.owners[at];
        owner.seen = seen;
        let mine = (record.owner == at).then(|| Revision::new(record.epoch));
        let mut decided = Vec::new();
        owner.admission.see(grant(record), mine, self.now, &mut decided);
        if mine.is_some() && (record.is_moving || owner.is_leaving) {
            owner.admission.drain(self.now);
        }
        for (id, decision) in decided {
            let place = self.owners[at].held.iter().position(|held| held.0 == id.sequence);
            let (id, generation) = self.owners[at].held.remove(place.expect("it is held"));
            self.decide(at, id, generation, decision);
        }
    }

    pub(super) fn back(&mut self, at: usize, id: u64, generation: u8, back: Back) {
        let link = &mut self.links[at];
        if link.generation == generation && !link.is_broken {
            link.back.push((id, back));
        }
    }

    pub(super) fn decide(&mut self, at: usize, id: u64, generation: u8, decision: Decision) {
        let back = match decision {
            Decision::Admit => {
                self.owners[at].mail.push((id, generation));
                Back::Admitted
            }
            Decision::Refuse(Refusal::Moving { newer }) => {
                let newer =
                    newer.map(|(owner, epoch)| (usize::from(owner.id != peer(0).id), epoch.get()));
                Back::Moving { newer }
            }
            Decision::Refuse(_) => Back::Expired,
            Decision::Hold => return self.owners[at].held.push((id, generation)),
        };
        self.back(at, id, generation, back);
    }

    pub(super) fn read_there(&mut self, at: usize, is_older: bool) {
        let link = &mut self.links[at];
        let (generation, (id, epoch)) = if is_older {
            (link.generation.wrapping_sub(1), link.older.remove(0))
        } else {
            // A newer connection ends an older one.
            if self.defect != Some(Defect::OlderLink) {
                link.older.clear();
            }
            (link.generation, link.there.remove(0))
        };
        let arrival = Arrival {
            id: MessageId { incarnation: Revision::new(1), sequence: id },
            epoch: Revision::new(epoch),
            is_nested: false,
            deadline: deadline(id),
        };
        let decision = self.owners[at].admission.receive(arrival, self.now);
        self.decide(at, id, generation, decision);
    }

    pub(super) fn run(&mut self, at: usize) -> (u64, u8) {
        let (id, generation) = self.owners[at].mail.remove(0);
        self.owners[at].admission.leave();
        self.runs[id as usize - 1] += 1;
        if self.runs[id as usize - 1] > 1 {
            self.found("a message ran twice");
        }
        if id < self.last_ran {
            self.found("messages ran out of order");
        }
        if self.ends[id as usize - 1] == Some(End::NotRun) {
            self.found("a message ran after it was reported as not run");
        }
        let truth = self.truth();
        if truth.owner != at {
            self.found("a message ran where the shard is not owned");
        }
        self.last_ran = self.last_ran.max(id);
        (id, generation)
    }
}
