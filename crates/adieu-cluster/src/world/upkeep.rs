//! Maintains the messages of simulated processes: when their view changes, when time passes, and at
//! their end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::traffic::Signal;
use super::{Event, MILLI, State, World, local};
use crate::records::ShardId;
use crate::region::ShardState;

/// How long a drain may take before what runs is ended.
const DRAIN: Duration = Duration::from_secs(9);

impl World {
    /// Brings what a process sends and handles up to its view, and does the work that is due.
    pub(super) fn refresh(&mut self, at: usize) {
        if !self.traffic.is_on || self.traffic.hosts[at].has_ended {
            return;
        }
        if self.processes[at].state == State::Ended {
            return self.has_ended(at);
        }
        let now = self.local(at);
        let Some(node) = self.processes[at].node() else { return };
        let is_lost = !node.is_good(now) || node.member.loss().is_some();
        let revision = node.view().revision;
        let host = &mut self.traffic.hosts[at];
        let is_due = host.wake().is_some_and(|wake| wake <= now);
        if host.seen == Some(revision) && host.is_lost == is_lost && !is_due {
            return self.set_timer(at);
        }
        host.seen = Some(revision);
        let held: BTreeMap<ShardId, crate::region::Held> = node
            .held()
            .filter(|(id, _)| matches!(&*id.region, "cart" | "user"))
            .map(|(id, held)| (id.clone(), held))
            .collect();
        for id in held.keys() {
            self.traffic.hosts[at].shard(id);
        }
        if is_lost && !self.traffic.hosts[at].is_lost {
            self.traffic.hosts[at].is_lost = true;
            for id in self.traffic.hosts[at].shards.keys().cloned().collect::<Vec<_>>() {
                let mut decided = Vec::new();
                self.traffic.hosts[at].shard(&id).admission.lose(&mut decided);
                self.decided(at, &id, decided);
                self.kill(at, &id, "the node has lost its place");
            }
        }
        for id in self.traffic.hosts[at].shards.keys().cloned().collect::<Vec<_>>() {
            let grant = self.grant(at, &id);
            let mine = held.get(&id);
            let shard = self.traffic.hosts[at].shard(&id);
            let mut decided = Vec::new();
            shard.admission.see(grant, mine.map(|it| it.epoch), now, &mut decided);
            shard.admission.advance(now, &mut decided);
            let closes = mine.is_some_and(|it| it.state == ShardState::Closing);
            if closes && shard.admission.open().is_some() {
                shard.admission.drain(now + DRAIN / 2);
                shard.kill_at = Some(now + DRAIN);
            }
            if mine.is_none() {
                shard.kill_at = None;
            }
            let is_late = shard.kill_at.is_some_and(|kill_at| kill_at <= now);
            self.decided(at, &id, decided);
            if is_late {
                self.kill(at, &id, "the drain has taken too long");
            }
            self.hand_over(at, &id);
        }
        for id in self.traffic.hosts[at].routes.keys().cloned().collect::<Vec<_>>() {
            let grant = self.grant(at, &id);
            let mut effects = Vec::new();
            let super::traffic::Traffic { hosts, network, .. } = &mut self.traffic;
            if let Some(route) = hosts[at].routes.get_mut(&id) {
                route.see(grant, now, &mut effects);
                route.advance(now, |id| network.take_back(at, id), &mut effects);
            }
            self.carry_out(at, effects);
        }
        self.set_timer(at);
    }

    /// Hands a shard over if it drains and is empty.
    pub(super) fn hand_over(&mut self, at: usize, id: &ShardId) {
        let Some(shard) = self.traffic.hosts[at].shards.get_mut(id) else { return };
        if shard.kill_at.is_none() || !shard.admission.hand_over() {
            return;
        }
        shard.kill_at = None;
        if let Some(epoch) = self.mine(at, id) {
            self.schedule(self.now, Event::Drained(at, id.clone(), epoch));
        }
    }

    pub(super) fn set_timer(&mut self, at: usize) {
        if let Some(wake) = self.traffic.hosts[at].wake() {
            let when = self.when(at, wake);
            let wake_at = &mut self.traffic.hosts[at].wake_at;
            if wake_at.is_none_or(|before| when < before || before < self.now) {
                *wake_at = Some(when);
                self.schedule(when, Event::Traffic(Signal::Wake(at)));
            }
        }
    }

    /// A process ends its links when it has left, or has lost its place.
    pub(super) fn has_ended(&mut self, at: usize) {
        for id in self.traffic.hosts[at].shards.keys().cloned().collect::<Vec<_>>() {
            let mut decided = Vec::new();
            self.traffic.hosts[at].shard(&id).admission.lose(&mut decided);
            self.decided(at, &id, decided);
            self.kill(at, &id, "the process has ended");
        }
        self.traffic.hosts[at].has_ended = true;
        self.traffic.ledger.sender_ended(at);
        for from in 0..self.processes.len() {
            self.says_bye(from, at);
        }
    }

    /// A process has crashed.
    pub(super) fn has_crashed(&mut self, at: usize) {
        if !self.traffic.is_on || self.traffic.hosts[at].has_ended {
            return;
        }
        self.traffic.hosts[at].has_ended = true;
        self.traffic.ledger.sender_ended(at);
        let shards = std::mem::take(&mut self.traffic.hosts[at].shards);
        for mailbox in shards.into_values().flat_map(|it| it.entities.into_values()) {
            let hand = mailbox.hand.map(|hand| hand.mail);
            for mail in mailbox.queue.into_iter().chain(hand) {
                self.traffic.ledger.killed(mail.key());
            }
        }
        for from in 0..self.processes.len() {
            let notices = self.traffic.rng.u64(0..200 * MILLI);
            self.breaks(from, at, notices);
        }
    }

    /// Long after the last deadline: nothing is kept, outstanding, held or inside.
    pub(super) fn final_look_at_messages(&mut self) -> Option<String> {
        self.traffic.ledger.final_look();
        if let Some(problem) = self.traffic.ledger.problem() {
            return Some(problem);
        }
        let living = self.traffic.hosts.iter().enumerate();
        let living = living
            .filter(|(at, host)| !host.has_ended && self.processes[*at].state == State::Running);
        for (at, host) in living {
            let name = self.processes[at].name();
            for (shard, route) in &host.routes {
                if !route.is_idle() {
                    return Some(format!("{name} still sends to {shard}: {route:?}"));
                }
            }
            for (id, shard) in &host.shards {
                if shard.admission.inside() > 0 || shard.admission.held() > 0 {
                    return Some(format!("{name} still works in {id}: {:?}", shard.admission));
                }
            }
        }
        None
    }

    /// Handlers work only in shards that their process owns.
    pub(super) fn look_at_work(&mut self) {
        let mut found = None;
        for (at, host) in self.traffic.hosts.iter().enumerate() {
            let process = &self.processes[at];
            let now = local(self.now, process.rate);
            let is_good = process.node().is_some_and(|node| node.is_good(now));
            if process.state != State::Running || !is_good || host.has_ended {
                continue;
            }
            for (shard, epoch) in host.at_work() {
                if !process.running(now).any(|owned| owned == (shard, epoch)) {
                    found = Some(format!("{} works in {shard} without owning it", process.name()));
                }
            }
        }
        let problem = found.or_else(|| self.traffic.ledger.problem());
        if let Some(problem) = problem {
            self.judge.found(self.now, problem);
        }
    }
}
