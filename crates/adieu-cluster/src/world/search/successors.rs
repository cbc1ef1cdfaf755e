//! The possible next states of the search.

use std::time::{Duration, Instant};

use super::model::{Back, MESSAGES, Next, Record, State, deadline, grant};
use crate::route::{Kind, Outgoing};

impl State {
    pub(super) fn next(&self) -> Vec<Next> {
        let mut out = Vec::new();
        if self.problem.is_some() {
            return out;
        }
        self.next_of_table(&mut out);
        self.next_of_sender(&mut out);
        for at in 0..2 {
            self.next_of_link(at, &mut out);
            if self.owners[at].is_alive {
                self.next_of_owner(at, &mut out);
            }
        }
        out
    }

    fn put(&self, out: &mut Vec<Next>, label: String, is_fair: bool, act: impl FnOnce(&mut Self)) {
        let mut state = self.clone();
        act(&mut state);
        out.push((label, is_fair, state));
    }

    fn next_of_table(&self, out: &mut Vec<Next>) {
        let record = self.truth();
        let next = record.changed + 1;
        let is_there = self.owners[record.owner].is_alive;
        let other = 1 - record.owner;
        if self.left.moves > 0 && !record.is_moving && is_there && self.owners[other].is_alive {
            self.put(out, "the leader requests a move".to_owned(), false, |state| {
                state.left.moves -= 1;
                state.records.push(Record { changed: next, is_moving: true, ..record });
            });
        }
        if !is_there && self.owners[other].is_alive {
            self.put(out, format!("{other} takes over from the dead"), true, |state| {
                let epoch = record.changed;
                let taken = Record { owner: other, epoch, changed: next, is_moving: false };
                state.records.push(taken);
            });
        }
        for at in 0..2 {
            let Some(replaces) = self.owners[at].handing else { continue };
            self.put(out, format!("the store answers the hand-off of {at}"), true, |state| {
                state.owners[at].handing = None;
                if record.changed == replaces && state.owners[1 - at].is_alive {
                    let (owner, epoch) = (1 - at, record.changed);
                    let over = Record { owner, epoch, changed: next, is_moving: false };
                    state.records.push(over);
                }
            });
        }
    }

    fn next_of_sender(&self, out: &mut Vec<Next>) {
        if self.asked < MESSAGES as u64 {
            let id = self.asked + 1;
            self.put(out, format!("the sender asks {id}"), true, |state| {
                state.asked = id;
                let (kind, deadline) = (Kind::Ask, deadline(id));
                let message = Outgoing { id, kind, is_nested: false, deadline };
                let mut effects = Vec::new();
                state.route.send(message, state.now, &mut effects);
                state.carry_out(effects);
            });
        }
        for seen in self.seen + 1..self.records.len() {
            self.put(out, format!("the sender sees record {seen}"), true, |state| {
                state.seen = seen;
                let mut effects = Vec::new();
                state.route.see(grant(state.records[seen]), state.now, &mut effects);
                state.carry_out(effects);
            });
        }
        let Some(wake) = self.route.wake() else { return };
        if wake < self.now + Duration::from_secs(10) {
            if self.pauses < 3 {
                self.put(out, "a pause ends".to_owned(), true, |state| {
                    state.pauses += 1;
                    state.pass(wake);
                });
            }
        } else if self.left.deadlines > 0 {
            self.put(out, "a deadline passes".to_owned(), false, |state| {
                state.left.deadlines -= 1;
                state.had_fault = true;
                state.pass(wake);
            });
        }
    }

    fn pass(&mut self, now: Instant) {
        self.now = now;
        let mut effects = Vec::new();
        // What the sender sends is read or lost: nothing can be taken back.
        self.route.advance(now, |_| false, &mut effects);
        self.carry_out(effects);
        for at in 0..2 {
            let mut decided = Vec::new();
            self.owners[at].admission.advance(now, &mut decided);
            for (id, decision) in decided {
                let place = self.owners[at].held.iter().position(|held| held.0 == id.sequence);
                let (id, generation) = self.owners[at].held.remove(place.expect("it is held"));
                self.decide(at, id, generation, decision);
            }
        }
    }

    fn next_of_link(&self, at: usize, out: &mut Vec<Next>) {
        let (link, owner) = (&self.links[at], &self.owners[at]);
        if !link.back.is_empty() {
            self.put(out, format!("the sender reads an answer of {at}"), true, |state| {
                state.read_back(at);
            });
        } else if !owner.is_alive && !link.is_broken && !link.pending.is_empty() {
            self.put(out, format!("the sender notices the end of {at}"), true, |state| {
                state.notice(at);
            });
        }
        if self.left.breaks > 0 && owner.is_alive && !link.pending.is_empty() {
            for is_lost in [true, false] {
                self.put(
                    out,
                    format!("the link to {at} breaks, lost: {is_lost}"),
                    false,
                    |state| {
                        state.left.breaks -= 1;
                        state.had_fault = true;
                        let there = std::mem::take(&mut state.links[at].there);
                        if !is_lost {
                            state.links[at].older = there;
                        }
                        state.notice(at);
                    },
                );
            }
        }
    }

    fn next_of_owner(&self, at: usize, out: &mut Vec<Next>) {
        let (owner, link) = (&self.owners[at], &self.links[at]);
        for seen in owner.seen + 1..self.records.len() {
            self.put(out, format!("{at} sees record {seen}"), true, |state| state.see(at, seen));
        }
        if !link.there.is_empty() {
            self.put(out, format!("{at} reads {}", link.there[0].0), true, |state| {
                state.read_there(at, false);
            });
        }
        if !link.older.is_empty() {
            self.put(out, format!("{at} reads {} late", link.older[0].0), true, |state| {
                state.read_there(at, true);
            });
        }
        if let Some((id, _)) = owner.mail.first() {
            self.put(out, format!("{at} handles {id}"), true, |state| {
                let (id, generation) = state.run(at);
                state.back(at, id, generation, Back::Done);
            });
        }
        let record = self.records[owner.seen];
        let drains = record.owner == at && owner.admission.open().is_none();
        if drains && owner.handing.is_none() && owner.admission.clone().hand_over() {
            self.put(out, format!("{at} hands over"), true, |state| {
                let owner = &mut state.owners[at];
                let is_empty = owner.admission.hand_over();
                owner.handing = is_empty.then_some(record.changed);
            });
        }
        if drains && self.left.kills > 0 && !owner.mail.is_empty() {
            self.put(out, format!("{at} kills what runs"), false, |state| {
                state.left.kills -= 1;
                state.had_fault = true;
                let (id, generation) = state.run(at);
                state.back(at, id, generation, Back::Unknown);
                for (id, generation) in std::mem::take(&mut state.owners[at].mail) {
                    state.owners[at].admission.leave();
                    state.back(at, id, generation, Back::NotRun);
                }
            });
        }
        if self.left.crashes > 0 {
            self.put(out, format!("{at} crashes"), false, |state| {
                state.left.crashes -= 1;
                state.had_fault = true;
                state.dies(at);
                state.links[at].back.clear();
            });
        }
        if self.left.leaves > 0 && self.owners[1 - at].is_alive {
            self.put(out, format!("{at} begins to leave"), false, |state| {
                state.left.leaves -= 1;
                state.owners[at].is_leaving = true;
                state.see(at, state.owners[at].seen);
            });
        }
        let owns = self.truth().owner == at || record.owner == at;
        if owner.is_leaving && !owns && owner.handing.is_none() && owner.mail.is_empty() {
            self.put(out, format!("{at} has left"), true, |state| {
                for (id, generation) in std::mem::take(&mut state.owners[at].held) {
                    state.back(at, id, generation, Back::Moving { newer: None });
                }
                let unread = state.links[at].there.len();
                let generation = state.links[at].generation;
                state.back(at, 0, generation, Back::Bye { unread });
                state.dies(at);
            });
        }
    }

    fn dies(&mut self, at: usize) {
        let owner = &mut self.owners[at];
        owner.is_alive = false;
        owner.mail.clear();
        owner.held.clear();
        owner.handing = None;
        self.links[at].older.clear();
        self.links[at].there.clear();
    }
}
