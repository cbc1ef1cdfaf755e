//! The owner's side of one shard: which messages may enter it, and when it is empty. Pure: grants and
//! envelopes come in; decisions go out.
//!
//! # Invariants
//!
//! 1. A message enters only if the shard is open under exactly the epoch that the message names.
//! 2. Closing is final for its epoch: once a message was refused as moving, no later message of its
//!    kind enters under that epoch. A message that is ahead of this node's view is therefore held and
//!    not refused: the sender may have sent others behind it.
//! 3. Nothing enters after the shard was handed over, and it is handed over only when it is empty.

use std::collections::VecDeque;

use crate::grant::Grant;
use crate::rules::{Rule, Rules};
use crate::store::Revision;
use crate::time::Instant;
use crate::transport::{MessageId, Refusal};

/// How many messages a shard holds that are ahead of this node's view.
const HELD: usize = 1_000;

/// The door of one shard on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Admission {
    limit: usize,
    grant: Grant,
    door: Door,
    /// How many messages and entities are inside.
    inside: usize,
    held: VecDeque<Arrival>,
    rules: Rules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Door {
    /// This node does not own the shard. If it has lost its place, it never will.
    Shut {
        is_final: bool,
    },
    Open {
        epoch: Revision,
    },
    /// Until `nested_until`, only nested messages enter.
    Draining {
        epoch: Revision,
        nested_until: Instant,
    },
    /// The shard is empty, and is being handed over.
    HandedOver {
        epoch: Revision,
    },
}

/// A message that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arrival {
    pub(crate) id: MessageId,
    pub(crate) epoch: Revision,
    pub(crate) is_nested: bool,
    pub(crate) deadline: Instant,
}

/// The decision about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the sender waits for the answer"]
pub(crate) enum Decision {
    /// It is inside until [`Admission::leave`].
    Admit,
    /// The decision follows later.
    Hold,
    Refuse(Refusal),
}

// === impl Admission ===

impl Default for Admission {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl Admission {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            limit: HELD,
            grant: Grant::default(),
            door: Door::Shut { is_final: false },
            inside: 0,
            held: VecDeque::new(),
            rules,
        }
    }

    /// Returns how many messages are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns how many messages and entities are inside.
    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    /// Returns the epoch under which all messages enter.
    pub(crate) fn open(&self) -> Option<Revision> {
        match self.door {
            Door::Open { epoch } => Some(epoch),
            Door::Shut { .. } | Door::Draining { .. } | Door::HandedOver { .. } => None,
        }
    }

    /// Returns the next instant at which [`Admission::advance`] has something to do.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.held.iter().map(|arrival| arrival.deadline).min()
    }

    // --- the door ---

    /// A view shows this grant, and this node owns the shard under `mine`. Opens the shard if its
    /// epoch is new, and decides about the messages that were held.
    pub(crate) fn see(
        &mut self,
        grant: Grant,
        mine: Option<Revision>,
        now: Instant,
        decided: &mut Vec<(MessageId, Decision)>,
    ) {
        if grant.is_newer_than(&self.grant) {
            self.grant = grant;
        }
        match (self.door, mine) {
            (Door::Shut { is_final: true }, _) => {}
            (_, None) => self.door = Door::Shut { is_final: false },
            (_, Some(epoch)) if self.epoch() < Some(epoch) => self.door = Door::Open { epoch },
            (_, Some(_)) => {}
        }
        for arrival in std::mem::take(&mut self.held) {
            match self.decide(&arrival, now) {
                Decision::Hold => self.held.push_back(arrival),
                decision @ (Decision::Admit | Decision::Refuse(_)) => {
                    decided.push((arrival.id, decision))
                }
            }
        }
    }

    /// Closes the shard, for good under this epoch. Nested messages enter until the given instant,
    /// which is half of the time that the drain may take. `Open => Draining`
    pub(crate) fn drain(&mut self, nested_until: Instant) {
        if let Door::Open { epoch } = self.door {
            self.door = Door::Draining { epoch, nested_until };
        }
    }

    /// Hands the shard over if nothing is inside, and returns whether that is so. The caller then
    /// commits the hand-off. `Draining => HandedOver`
    #[must_use = "a shard that is not empty must not be handed over"]
    pub(crate) fn hand_over(&mut self) -> bool {
        if let Door::Draining { epoch, .. } = self.door
            && (self.inside == 0 || !self.rules.holds(Rule::EmptyBeforeHandOver))
        {
            self.door = Door::HandedOver { epoch };
        }
        matches!(self.door, Door::HandedOver { .. })
    }

    /// Closes the door for good, because this node has lost its place.
    pub(crate) fn lose(&mut self, decided: &mut Vec<(MessageId, Decision)>) {
        self.door = Door::Shut { is_final: true };
        for arrival in std::mem::take(&mut self.held) {
            decided.push((arrival.id, self.refuse(arrival.epoch)));
        }
    }

    fn epoch(&self) -> Option<Revision> {
        match self.door {
            Door::Shut { .. } => None,
            Door::Open { epoch } | Door::Draining { epoch, .. } | Door::HandedOver { epoch } => {
                Some(epoch)
            }
        }
    }

    // --- messages ---

    /// Decides about a message that arrives.
    pub(crate) fn receive(&mut self, arrival: Arrival, now: Instant) -> Decision {
        let decision = self.decide(&arrival, now);
        if decision == Decision::Hold {
            // The sender lost the link and repeats the message. The repetition replaces the held
            // one, so there is one decision.
            if let Some(held) = self.held.iter_mut().find(|held| held.id == arrival.id) {
                *held = arrival;
                return decision;
            }
            if self.held.len() >= self.limit {
                let text = format!("{} messages wait for the shard to open", self.limit);
                return Decision::Refuse(Refusal::Overloaded(text));
            }
            self.held.push_back(arrival);
        }
        decision
    }

    /// Admits a message at once, or changes nothing: the fast path for messages of this node.
    pub(crate) fn try_admit(&mut self, arrival: &Arrival, now: Instant) -> bool {
        self.decide(arrival, now) == Decision::Admit
    }

    fn decide(&mut self, arrival: &Arrival, now: Instant) -> Decision {
        let Arrival { epoch, is_nested, deadline, .. } = *arrival;
        if deadline <= now {
            return Decision::Refuse(Refusal::Expired);
        }
        let is_exact = self.epoch() == Some(epoch) || !self.rules.holds(Rule::EpochEquality);
        let decision = match self.door {
            Door::Open { .. } if is_exact => Decision::Admit,
            Door::Draining { nested_until, .. }
                if is_exact && is_nested && self.rules.holds(Rule::AdmitNested) =>
            {
                if now < nested_until {
                    Decision::Admit
                } else {
                    Decision::Refuse(Refusal::Draining)
                }
            }
            Door::Shut { is_final: true } => self.refuse(epoch),
            Door::Shut { .. }
            | Door::Open { .. }
            | Door::Draining { .. }
            | Door::HandedOver { .. } => {
                let is_ahead = match self.grant.owned() {
                    Some((_, known)) => known < epoch,
                    None => self.grant.floor() <= epoch,
                };
                if is_ahead && self.rules.holds(Rule::HoldAhead) {
                    Decision::Hold
                } else {
                    self.refuse(epoch)
                }
            }
        };
        self.inside += usize::from(decision == Decision::Admit);
        decision
    }

    /// Refuses a message under this epoch, and names the newer grant.
    fn refuse(&self, epoch: Revision) -> Decision {
        let newer = self.grant.owned().filter(|(_, newer)| epoch < *newer);
        let newer = newer.map(|(owner, epoch)| (owner.clone(), epoch));
        Decision::Refuse(Refusal::Moving { newer })
    }

    /// Something else than a message is inside, such as an entity that still runs.
    pub(crate) fn enter(&mut self) {
        self.inside += 1;
    }

    /// A message or an entity is no longer inside.
    pub(crate) fn leave(&mut self) {
        self.inside = self.inside.saturating_sub(1);
    }

    /// Refuses the messages that were held until their deadline.
    pub(crate) fn advance(&mut self, now: Instant, decided: &mut Vec<(MessageId, Decision)>) {
        self.held.retain(|arrival| {
            let is_over = arrival.deadline <= now;
            if is_over {
                decided.push((arrival.id, Decision::Refuse(Refusal::Expired)));
            }
            !is_over
        });
    }
}

#[cfg(test)]
mod tests;
