//! Messages in the simulated world: processes send them, links carry them, entities handle them, and
//! the ledger judges what became of each.

use std::time::Duration;

use super::host::{Host, Mail, Sent};
use super::ledger::{Asked, Ledger};
use super::links::{LinkState, Network};
use super::{Event, MILLI, SECOND, Time, World};
use crate::grant::Grant;
use crate::records::ShardId;
use crate::route::{Effect, Failed, Kind, Next, Outcome, Outgoing, Repeats, Route, Unknown};
use crate::rules::Rules;
use crate::transport::{Event as Fate, Refusal};

/// A peer that is silent for longer is not there.
pub(super) const KEEPALIVE: Time = 3 * SECOND;

/// A defect that tests introduce, in addition to broken rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Defect {
    /// A process that ends a link does not report which envelopes it has read.
    NoBye,
    /// A receiver reads an older connection after a newer one.
    OlderLink,
    /// A link accepts envelopes while it reports what became of those before.
    AcceptsWhileEnding,
    /// A sender does not record that an earlier attempt may have run.
    ForgetsAttempts,
}

pub(super) struct Traffic {
    pub(super) is_on: bool,
    pub(super) rng: fastrand::Rng,
    pub(super) rules: Rules,
    pub(super) defect: Option<Defect>,
    pub(super) hosts: Vec<Host>,
    pub(super) network: Network,
    pub(super) ledger: Ledger,
    /// The longest time that a handler usually takes.
    pub(super) handles: Time,
}

/// Something that happens to a message.
pub(super) enum Signal {
    Send {
        at: usize,
        entity: u8,
        kind: Kind,
        lasts: Duration,
        nests: u8,
    },
    /// An attempt to connect has ended.
    Dialled {
        from: usize,
        to: usize,
        generation: u32,
    },
    /// An envelope arrives at the owner.
    Frame {
        from: usize,
        to: usize,
        number: u64,
        mail: Mail,
    },
    /// An answer arrives at the sender.
    Answer {
        from: usize,
        to: usize,
        generation: u32,
        id: u64,
        fate: Fate,
    },
    /// The sender reads which envelopes the receiver has read.
    Bye {
        from: usize,
        to: usize,
        generation: u32,
        read: u64,
    },
    /// The sender notices that a connection is broken.
    Break {
        from: usize,
        to: usize,
        generation: u32,
    },
    /// The link reports what became of the next envelope of a connection that has ended.
    Reports {
        from: usize,
        to: usize,
    },
    /// The pause of an idempotent ask is over.
    Repeat {
        at: usize,
        id: u64,
    },
    Handled {
        at: usize,
        shard: ShardId,
        entity: u8,
        token: u64,
    },
    /// A message that went straight to its entity has reached its deadline.
    Deadline {
        at: usize,
        id: u64,
    },
    Wake(usize),
}

// === impl Traffic ===

impl Traffic {
    pub(super) fn new(seed: u64, is_on: bool) -> Self {
        Self {
            is_on,
            rng: fastrand::Rng::with_seed(seed ^ 0x7a_ff1c),
            rules: Rules::default(),
            defect: None,
            hosts: Vec::new(),
            network: Network { slowest: 3 * MILLI, ..Network::default() },
            ledger: Ledger::default(),
            handles: 40 * MILLI,
        }
    }

    pub(super) fn start(&mut self) {
        self.hosts.push(Host { rules: self.rules, ..Host::default() });
    }
}

// === impl Signal ===

impl Signal {
    /// Returns the process to which it happens.
    pub(super) fn at(&self) -> usize {
        match self {
            Self::Send { at, .. }
            | Self::Handled { at, .. }
            | Self::Deadline { at, .. }
            | Self::Repeat { at, .. }
            | Self::Wake(at)
            | Self::Frame { to: at, .. }
            | Self::Dialled { from: at, .. }
            | Self::Answer { from: at, .. }
            | Self::Bye { from: at, .. }
            | Self::Reports { from: at, .. }
            | Self::Break { from: at, .. } => *at,
        }
    }
}

/// Returns the shard of an entity.
pub(super) fn shard_of(entity: u8) -> ShardId {
    match entity {
        0..=4 => ShardId { region: "cart".into(), number: u32::from(entity % 3) },
        _ => ShardId { region: "user".into(), number: 0 },
    }
}

impl World {
    pub(super) fn signal(&mut self, after: Time, signal: Signal) {
        self.schedule(self.now + after, Event::Traffic(signal));
    }

    /// A process is suspended: its peers notice when it stays silent.
    pub(super) fn deferred(&mut self, signal: &Signal, until: Time) {
        if let Signal::Frame { from, to, mail, .. } = signal
            && from != to
            && until > self.now + KEEPALIVE
        {
            let (from, to, generation) = (*from, *to, mail.generation);
            self.signal(KEEPALIVE, Signal::Break { from, to, generation });
        }
    }

    pub(super) fn happens_to_message(&mut self, signal: Signal) {
        let at = signal.at();
        if at >= self.processes.len() || self.traffic.hosts[at].has_ended {
            return;
        }
        let now = self.local(at);
        match signal {
            Signal::Send { entity, kind, lasts, nests, .. } => {
                let process = &self.processes[at];
                if process.is_member() && !process.is_leaving() {
                    let sent = Sent {
                        shard: shard_of(entity),
                        entity,
                        kind,
                        is_nested: false,
                        deadline: now + lasts,
                        nests,
                        parent: None,
                        repeats: Repeats::default(),
                    };
                    self.send_message(at, sent);
                }
            }
            Signal::Dialled { from, to, generation } => self.dialled(from, to, generation),
            Signal::Frame { from, to, number, mail } => self.carried(from, to, number, mail),
            Signal::Answer { from, to, generation, id, fate } => {
                let kind = self.traffic.hosts[from].sent.get(&id).map(|it| it.kind);
                let is_final = fate != Fate::Admitted || kind == Some(Kind::Tell);
                if self.traffic.network.link(from, to).settles(generation, id, is_final) {
                    self.fate(from, id, fate);
                }
            }
            Signal::Bye { from, to, generation, read } => {
                self.ends(from, to, generation, Some(read));
            }
            Signal::Break { from, to, generation } => {
                if self.traffic.network.link(from, to).state == LinkState::Up {
                    self.ends(from, to, generation, None);
                }
            }
            Signal::Handled { shard, entity, token, .. } => self.handled(at, &shard, entity, token),
            Signal::Deadline { id, .. } => {
                // An attempt that was followed by another one is no longer in progress.
                let is_waiting = self.traffic.hosts[at].sent.contains_key(&id);
                if is_waiting && !self.traffic.ledger.has_outcome((at, id)) {
                    self.attempted(at, id, Outcome::Unknown(Unknown::Expired), true);
                }
            }
            Signal::Reports { from, to } => self.reports(from, to),
            Signal::Repeat { id, .. } => {
                if let Some(sent) = self.traffic.hosts[at].sent.remove(&id) {
                    self.traffic.ledger.count("repeated by the sender");
                    let host = &mut self.traffic.hosts[at];
                    host.sequence += 1;
                    let next = host.sequence;
                    self.traffic.ledger.repeats((at, next), (at, id));
                    self.attempt(at, next, sent);
                }
            }
            Signal::Wake(_) => {
                if self.traffic.hosts[at].wake_at.is_some_and(|wake| wake <= self.now) {
                    self.traffic.hosts[at].wake_at = None;
                }
            }
        }
        self.refresh(at);
    }

    // --- the sender ---

    pub(super) fn grant(&self, at: usize, shard: &ShardId) -> Grant {
        let node = self.processes[at].node();
        node.map_or(Grant::Absent, |node| Grant::of(node.view().shards.get(shard)))
    }

    pub(super) fn send_message(&mut self, at: usize, sent: Sent) -> u64 {
        let Sent { entity, kind, is_nested, deadline, .. } = sent;
        let host = &mut self.traffic.hosts[at];
        host.sequence += 1;
        let id = host.sequence;
        self.traffic.ledger.asked((at, id), Asked { kind, entity, is_nested, deadline });
        self.attempt(at, id, sent);
        id
    }

    fn attempt(&mut self, at: usize, id: u64, sent: Sent) {
        let now = self.local(at);
        let grant = self.grant(at, &sent.shard);
        let Sent { entity, kind, is_nested, deadline, nests, .. } = sent;
        let shard = sent.shard.clone();
        let host = &mut self.traffic.hosts[at];
        host.sent.insert(id, sent);
        let rules = host.rules;
        let mut effects = Vec::new();
        let route = host.routes.entry(shard.clone()).or_insert_with(|| Route::new(rules));
        route.see(grant, now, &mut effects);
        // The fast path: the entity is here, and nothing is before the message.
        let me = self.processes[at].node().and_then(crate::node::Node::me);
        let direct = me.and_then(|me| route.direct(&me.id, is_nested));
        if let Some(epoch) = direct {
            let mail = Mail {
                from: at,
                id,
                generation: 0,
                is_direct: true,
                shard: shard.clone(),
                epoch,
                entity,
                kind,
                is_nested,
                remaining: deadline.saturating_duration_since(now),
                deadline: Some(deadline),
                nests,
            };
            let arrival = mail.arrival(now);
            if host.shard(&shard).admission.try_admit(&arrival, now) {
                self.traffic.ledger.count("direct");
                self.traffic.ledger.sent((at, id));
                self.carry_out(at, effects);
                let after = self.when(at, deadline).saturating_sub(self.now);
                self.signal(after, Signal::Deadline { at, id });
                self.admitted(at, mail);
                return;
            }
        }
        let host = &mut self.traffic.hosts[at];
        if let Some(route) = host.routes.get_mut(&shard) {
            route.send(Outgoing { id, kind, is_nested, deadline }, now, &mut effects);
        }
        self.carry_out(at, effects);
    }

    pub(super) fn carry_out(&mut self, at: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Finish { id, outcome } => self.attempted(at, id, outcome, false),
                Effect::Send { to, epoch, id } => {
                    let now = self.local(at);
                    let Some(sent) = self.traffic.hosts[at].sent.get(&id).cloned() else {
                        continue;
                    };
                    let is_peer = |it: &super::Process| {
                        let me = it.node().and_then(crate::node::Node::me);
                        me.is_some_and(|me| me.id == to.id && me.incarnation == to.incarnation)
                    };
                    let Some(to) = self.processes.iter().position(is_peer) else {
                        // It has a record, and has not seen it yet.
                        let why = "the node does not listen yet".to_owned();
                        self.fate(at, id, Fate::Returned(why));
                        continue;
                    };
                    let mail = Mail {
                        from: at,
                        id,
                        generation: 0,
                        is_direct: false,
                        shard: sent.shard,
                        epoch,
                        entity: sent.entity,
                        kind: sent.kind,
                        is_nested: sent.is_nested,
                        remaining: sent.deadline.saturating_duration_since(now),
                        deadline: None,
                        nests: sent.nests,
                    };
                    self.transmit(to, mail);
                }
            }
        }
    }

    /// The transport reports the fate of an envelope.
    pub(super) fn fate(&mut self, at: usize, id: u64, fate: Fate) {
        match &fate {
            Fate::Refused(Refusal::Moving { .. }) => self.traffic.ledger.count("kept"),
            Fate::Returned(_) => self.traffic.ledger.count("returned"),
            Fate::Lost(_) => self.traffic.ledger.count("lost"),
            _ => {}
        }
        let now = self.local(at);
        let name = self.processes[at].name();
        self.note(|| format!("{name}: message {id} {fate:?}"));
        // The route still waits for envelopes whose messages have ended.
        let mut effects = Vec::new();
        for route in self.traffic.hosts[at].routes.values_mut() {
            route.on(id, fate.clone(), now, &mut effects);
        }
        self.carry_out(at, effects);
    }

    /// An attempt has ended. The sender repeats those that went straight to their entity.
    pub(super) fn attempted(&mut self, at: usize, id: u64, outcome: Outcome, is_direct: bool) {
        let now = self.local(at);
        let sent = self.traffic.hosts[at].sent.get_mut(&id);
        let Some(sent) = sent.filter(|sent| sent.kind == Kind::IdempotentAsk) else {
            return self.conclude(at, id, outcome);
        };
        let failed = match outcome {
            Outcome::Replied(_) | Outcome::Admitted => return self.conclude(at, id, outcome),
            Outcome::NotRun(why) => Failed::NotRun(why),
            Outcome::Unknown(why) => Failed::Unknown(why),
        };
        if self.traffic.defect == Some(Defect::ForgetsAttempts) {
            sent.repeats = Repeats::default();
        }
        let outcome = match sent.repeats.after(failed, is_direct, now, sent.deadline) {
            Next::Repeat(pause) => {
                let after = self.when(at, now + pause).saturating_sub(self.now);
                return self.signal(after, Signal::Repeat { at, id });
            }
            Next::NotRun(why) => Outcome::NotRun(why),
            Next::Unknown(why) => Outcome::Unknown(why),
        };
        self.conclude(at, id, outcome);
    }

    fn conclude(&mut self, at: usize, id: u64, outcome: Outcome) {
        let now = self.local(at);
        let name = self.processes[at].name();
        self.note(|| format!("{name}: message {id} ends: {outcome:?}"));
        self.traffic.ledger.ended((at, id), outcome, now);
        let sent = self.traffic.hosts[at].sent.remove(&id);
        if let Some((shard, entity, token)) = sent.and_then(|sent| sent.parent) {
            let after = self.traffic.rng.u64(0..MILLI);
            self.signal(after, Signal::Handled { at, shard, entity, token });
        }
    }
}
