//! The sender's side of one shard. Pure: the time, grants and events of the transport come in; effects
//! go out.
//!
//! # Invariants
//!
//! 1. Every message has exactly one outcome.
//! 2. Messages of a lane are sent in the order of their numbers: a message is sent only if none is
//!    kept before it, and a message that was refused is kept in its place. Nested messages have a
//!    lane of their own, because they must not wait for messages that a draining shard refuses.
//! 3. Nothing is sent under a new epoch while a message is outstanding under another. Nothing is sent
//!    again under an epoch that has refused a message of the lane as moving.
//! 4. A message that is kept has not run, unless it is idempotent and was sent before.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Effect, Kind, Message, NotRun, Outcome, Outgoing, State, Unknown, Waited};
use super::pause;
use crate::grant::Grant;
use crate::records::NodeId;
use crate::rules::{Rule, Rules};
use crate::store::Revision;
use crate::time::{Duration, Instant};
use crate::transport::{Event, Refusal, Reply};

/// How many messages are kept for a shard.
const KEPT: usize = 1_000;

/// Why a message that was taken back had not been sent.
const NOT_SENT: &str = "the link to the owner has not sent it";

/// The messages of this node to one shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    limit: usize,
    grant: Grant,
    lanes: [Lane; 2],
    messages: BTreeMap<u64, Message>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// The idempotent messages that rest until their next attempt.
    resting: BTreeSet<(Instant, u64)>,
    /// The owner under this epoch could not be reached.
    pause: Option<Pause>,
    /// Whether new messages are refused.
    is_leaving: bool,
    is_closed: bool,
    rules: Rules,
}

/// Messages that are in order among each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lane {
    kept: BTreeSet<u64>,
    /// How many messages are outstanding, and under which epoch.
    outstanding: usize,
    epoch: Revision,
    /// The highest epoch under which a message was refused as moving.
    refused: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pause {
    epoch: Revision,
    until: Instant,
    lasts: Duration,
}

// === impl Route ===

impl Default for Route {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl Route {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            limit: KEPT,
            grant: Grant::default(),
            lanes: [Lane::default(), Lane::default()],
            messages: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            resting: BTreeSet::new(),
            pause: None,
            is_leaving: false,
            is_closed: false,
            rules,
        }
    }

    /// Returns how many messages this node keeps.
    pub(crate) fn kept(&self) -> usize {
        self.lanes.iter().map(|lane| lane.kept.len()).sum::<usize>() + self.resting.len()
    }

    /// Returns how many messages were sent that the owner has neither admitted nor refused.
    pub(crate) fn outstanding(&self) -> usize {
        self.lanes.iter().map(|lane| lane.outstanding).sum()
    }

    /// Returns whether nothing is known about any message.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the epoch under which a message can go straight to the shard, if this node owns it
    /// and no message is before it. If the shard does not admit the message at once, give it to
    /// [`Route::send`].
    pub(crate) fn direct(&self, me: &NodeId, is_nested: bool) -> Option<Revision> {
        let lane = &self.lanes[usize::from(is_nested)];
        let (owner, epoch) = self.grant.owned()?;
        let is_free = lane.outstanding == 0 && lane.kept.is_empty() && lane.refused < epoch;
        (is_free && owner.id == *me && !self.is_leaving).then_some(epoch)
    }

    /// Returns the next instant at which [`Route::advance`] has something to do.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, u64)>| set.first().map(|(at, _)| *at);
        // A pause ends a wait only for messages that could be sent otherwise.
        let waits = |lane: &Lane, epoch| !lane.kept.is_empty() && lane.may_send(epoch, self.rules);
        let owned = self.grant.owned().map(|(_, epoch)| epoch);
        let pause = self.pause.filter(|pause| owned == Some(pause.epoch));
        let pause = pause.filter(|pause| self.lanes.iter().any(|lane| waits(lane, pause.epoch)));
        let pause = pause.map(|pause| pause.until);
        [first(&self.deadlines), first(&self.resting), pause].into_iter().flatten().min()
    }

    // --- what happens ---

    /// Takes a message. Its number is higher than those of all messages before.
    pub(crate) fn send(&mut self, message: Outgoing, now: Instant, out: &mut Vec<Effect>) {
        let Outgoing { id, kind, is_nested, deadline } = message;
        let refusal = if self.is_leaving {
            Some(NotRun::Closed)
        } else if deadline <= now {
            Some(NotRun::Expired(self.why()))
        } else if self.kept() >= self.limit {
            Some(NotRun::TooManyKept { limit: self.limit })
        } else {
            None
        };
        if let Some(why) = refusal {
            out.push(Effect::Finish { id, outcome: Outcome::NotRun(why) });
            return;
        }
        self.deadlines.insert((deadline, id));
        let state = State::Kept(self.why());
        let message = Message { kind, is_nested, deadline, state, attempted: None, attempts: 0 };
        self.messages.insert(id, message);
        self.lanes[usize::from(is_nested)].kept.insert(id);
        self.flush(now, out);
    }

    /// Applies the grant of a view, unless a newer one is known.
    pub(crate) fn see(&mut self, grant: Grant, now: Instant, out: &mut Vec<Effect>) {
        if grant.is_newer_than(&self.grant) {
            self.grant = grant;
            self.flush(now, out);
        }
    }

    /// Processes an event that the transport reports about a message that was sent.
    pub(crate) fn on(&mut self, id: u64, event: Event, now: Instant, out: &mut Vec<Effect>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let lane = &mut self.lanes[usize::from(message.is_nested)];
        let has_outcome = message.state == State::Abandoned;
        match message.state {
            State::Kept(_) | State::Rests { .. } => return,
            State::Outstanding | State::Abandoned => {
                lane.outstanding -= 1;
                message.state = State::Admitted;
            }
            State::Admitted => {}
        }
        if let Event::Refused(Refusal::Moving { newer }) = &event {
            lane.refused = lane.refused.max(lane.epoch);
            if let Some((owner, epoch)) = newer {
                let hint = Grant::Owned { owner: owner.clone(), epoch: *epoch };
                if hint.is_newer_than(&self.grant) {
                    self.grant = hint;
                }
            }
        }
        if has_outcome {
            self.messages.remove(&id);
        } else {
            self.settle(id, event, now, out);
        }
        self.flush(now, out);
    }

    /// Decides what becomes of a message that is no longer outstanding.
    fn settle(&mut self, id: u64, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Admitted => {
                self.pause = None;
                let Some(message) = self.messages.get_mut(&id) else { return };
                message.state = State::Admitted;
                if message.kind == Kind::Tell {
                    self.finish(id, Outcome::Admitted, out);
                }
            }
            Event::Refused(Refusal::Moving { .. }) => self.keep(id, Waited::Moving, out),
            Event::Refused(refusal) | Event::Replied(Reply::NotRun(refusal)) => {
                self.did_not_run(id, NotRun::Refused(refusal), out);
            }
            Event::Returned(why) => {
                self.pause(now);
                self.keep(id, Waited::Unreachable(why), out);
            }
            Event::Lost(why) => self.may_have_run(id, Unknown::Lost(why), now, out),
            Event::Replied(Reply::Done(reply)) => self.finish(id, Outcome::Replied(reply), out),
            Event::Replied(Reply::Unknown(why)) => {
                self.may_have_run(id, Unknown::NotReplied(why), now, out);
            }
        }
    }

    /// Cancels the report of a message's outcome, because its caller no longer waits.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.finish(id, Outcome::Unknown(Unknown::Expired), &mut Vec::new());
    }

    /// Refuses new messages, because this node is about to leave. Messages that it keeps may still
    /// be sent.
    pub(crate) fn refuse_new(&mut self) {
        self.is_leaving = true;
    }

    /// Stops sending: messages that are kept do not run, and sent ones wait for their events.
    pub(crate) fn close(&mut self, out: &mut Vec<Effect>) {
        self.is_leaving = true;
        self.is_closed = true;
        let waits = |state: &State| matches!(state, State::Kept(_) | State::Rests { .. });
        let kept = self.messages.iter().filter(|(_, message)| waits(&message.state));
        for id in kept.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.did_not_run(id, NotRun::Closed, out);
        }
    }

    /// Ends every message without an outcome, because no event and no time will be reported after
    /// this.
    pub(crate) fn abandon(
        &mut self,
        why: &str,
        mut take_back: impl FnMut(u64) -> bool,
        out: &mut Vec<Effect>,
    ) {
        self.close(out);
        for id in self.messages.keys().copied().collect::<Vec<_>>() {
            let is_outstanding =
                self.messages.get(&id).is_some_and(|it| it.state == State::Outstanding);
            if is_outstanding && take_back(id) {
                self.did_not_run(id, NotRun::Closed, out);
            }
            self.finish(id, Outcome::Unknown(Unknown::NotReplied(why.to_owned())), out);
        }
        self.messages.clear();
        self.deadlines.clear();
        self.lanes = Default::default();
    }

    /// Handles the deadlines and the repeated attempts that are due. `take_back` takes a message back
    /// from the transport, and returns false if it was sent.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        mut take_back: impl FnMut(u64) -> bool,
        out: &mut Vec<Effect>,
    ) {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.expire(id, &mut take_back, out);
        }
        while let Some((at, id)) = self.resting.first().copied().filter(|(at, _)| *at <= now) {
            self.resting.remove(&(at, id));
            self.keep(id, self.why(), out);
        }
        self.flush(now, out);
    }

    // --- how messages end ---

    fn expire(&mut self, id: u64, take_back: &mut impl FnMut(u64) -> bool, out: &mut Vec<Effect>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        match message.state.clone() {
            State::Kept(why) => self.did_not_run(id, NotRun::Expired(why), out),
            State::Outstanding if self.rules.holds(Rule::UnsentIsTakenBack) && take_back(id) => {
                // As if the transport had returned it.
                let why = Waited::Unreachable(NOT_SENT.to_owned());
                message.state = State::Kept(why.clone());
                self.lanes[usize::from(message.is_nested)].outstanding -= 1;
                self.did_not_run(id, NotRun::Expired(why), out);
            }
            State::Outstanding if !self.rules.holds(Rule::SentIsUnknown) => {
                self.did_not_run(id, NotRun::Expired(Waited::Moving), out);
            }
            State::Rests { .. } | State::Outstanding | State::Abandoned | State::Admitted => {
                self.finish(id, Outcome::Unknown(Unknown::Expired), out);
            }
        }
    }

    fn did_not_run(&mut self, id: u64, why: NotRun, out: &mut Vec<Effect>) {
        let attempted = self.messages.get(&id).and_then(|message| message.attempted.clone());
        let outcome = attempted.map_or(Outcome::NotRun(why), Outcome::Unknown);
        self.finish(id, outcome, out);
    }

    /// Repeats the message if it is idempotent. Otherwise its fate stays unknown.
    fn may_have_run(&mut self, id: u64, why: Unknown, now: Instant, out: &mut Vec<Effect>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let until = now + pause::after(message.attempts);
        if message.kind != Kind::IdempotentAsk || self.is_closed || message.deadline <= until {
            return self.finish(id, Outcome::Unknown(why), out);
        }
        message.attempts += 1;
        message.attempted = Some(why);
        message.state = State::Rests { until };
        self.resting.insert((until, id));
        self.bound(out);
    }

    /// Keeps a message in its place.
    fn keep(&mut self, id: u64, why: Waited, out: &mut Vec<Effect>) {
        if self.is_closed {
            return self.did_not_run(id, NotRun::Closed, out);
        }
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.state = State::Kept(why);
        self.lanes[usize::from(message.is_nested)].kept.insert(id);
        self.bound(out);
    }

    /// Refuses the newest message if too many are kept.
    fn bound(&mut self, out: &mut Vec<Effect>) {
        if self.kept() <= self.limit {
            return;
        }
        let newest = self.lanes.iter().filter_map(|lane| lane.kept.last()).max();
        let newest = newest.or_else(|| self.resting.first().map(|(_, id)| id));
        if let Some(id) = newest.copied() {
            self.did_not_run(id, NotRun::TooManyKept { limit: self.limit }, out);
        }
    }

    /// Reports the outcome. If the message is outstanding, the owner still has to decide about it.
    fn finish(&mut self, id: u64, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let lane = &mut self.lanes[usize::from(message.is_nested)];
        self.deadlines.remove(&(message.deadline, id));
        match message.state {
            State::Abandoned => return,
            State::Outstanding => message.state = State::Abandoned,
            State::Kept(_) => {
                lane.kept.remove(&id);
                self.messages.remove(&id);
            }
            State::Rests { until } => {
                self.resting.remove(&(until, id));
                self.messages.remove(&id);
            }
            State::Admitted => {
                self.messages.remove(&id);
            }
        }
        out.push(Effect::Finish { id, outcome });
    }

    // --- sending ---

    /// Returns why a message cannot be sent now.
    fn why(&self) -> Waited {
        match self.grant {
            Grant::Owned { .. } => Waited::Moving,
            Grant::Absent | Grant::Free { .. } => Waited::NoOwner,
        }
    }

    /// Pauses, because the owner could not be reached. All messages that one link returns count as one
    /// failure.
    fn pause(&mut self, now: Instant) {
        let Some((_, epoch)) = self.grant.owned() else { return };
        let lasts = match self.pause.filter(|pause| pause.epoch == epoch) {
            Some(pause) if now < pause.until => return,
            Some(pause) => pause::next(pause.lasts),
            None => pause::FIRST,
        };
        self.pause = Some(Pause { epoch, until: now + lasts, lasts });
    }

    /// Sends the messages that may be sent.
    fn flush(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some((owner, epoch)) = self.grant.owned() else { return };
        if self.pause.is_some_and(|pause| pause.epoch == epoch && now < pause.until) {
            return;
        }
        for lane in &mut self.lanes {
            if !lane.may_send(epoch, self.rules) {
                continue;
            }
            while let Some(id) = lane.next(self.rules) {
                let Some(message) = self.messages.get_mut(&id) else { continue };
                message.state = State::Outstanding;
                lane.outstanding += 1;
                lane.epoch = epoch;
                out.push(Effect::Send { to: owner.clone(), epoch, id });
            }
        }
    }
}

// === impl Lane ===

impl Lane {
    fn may_send(&self, epoch: Revision, rules: Rules) -> bool {
        let is_settled = self.outstanding == 0
            || self.epoch == epoch
            || !rules.holds(Rule::SettleBeforeNewOwner);
        is_settled && self.refused < epoch
    }

    fn next(&mut self, rules: Rules) -> Option<u64> {
        if rules.holds(Rule::KeepOrder) { self.kept.pop_first() } else { self.kept.pop_last() }
    }
}

#[cfg(test)]
mod tests;
