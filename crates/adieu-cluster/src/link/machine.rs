//! The sending side of one link: which envelopes are queued, sent, admitted and answered, and what
//! becomes of each when the link ends.
//!
//! An envelope counts as sent when it is put into a frame. The network may lose the frame, but this
//! side cannot observe that, so after that instant only the peer's `Bye` can prove that the
//! envelope was not read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;

use super::frame::{Backward, Forward, Parcel, size_of};
use super::limits::Limits;
use crate::time::Instant;
use crate::transport::{Envelope, Event, Full, Refusal};

/// The sending side of one link after another to the same peer. `T` identifies an envelope to the
/// caller.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    limits: Limits,
    state: State,
    queued: VecDeque<(Envelope, T)>,
    /// Sent, and neither admitted nor refused, by number.
    undecided: BTreeMap<u64, Sent<T>>,
    /// Asks that were admitted, by number.
    unanswered: HashMap<u64, T>,
    /// The number of the last envelope that was sent on this link.
    last_sent: u64,
    /// The bytes of queued and undecided envelopes.
    bytes: usize,
    effects: Vec<Effect<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No link is open: envelopes are queued.
    Waiting,
    /// Envelopes are sent.
    Open,
    /// Nothing more is sent on this link.
    Finishing,
    /// There will be no other link.
    Closed,
}

#[derive(Debug)]
struct Sent<T> {
    tag: T,
    is_ask: bool,
    size: usize,
}

/// Events of one envelope that are to be reported, in order.
#[derive(Debug)]
pub(crate) struct Effect<T> {
    /// The number of the envelope, if it was sent.
    number: u64,
    pub(crate) tag: T,
    pub(crate) first: Event,
    pub(crate) then: Option<Event>,
    /// Whether further events will follow. Then the effect must be returned with [`Outgoing::restore`].
    pub(crate) is_unanswered: bool,
}

/// The peer has violated the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer {0}")]
pub(crate) struct Violation(pub(crate) String);

// === impl Outgoing ===

impl<T> Outgoing<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Waiting,
            queued: VecDeque::new(),
            undecided: BTreeMap::new(),
            unanswered: HashMap::new(),
            last_sent: 0,
            bytes: 0,
            effects: Vec::new(),
        }
    }

    /// Queues an envelope.
    pub(crate) fn push(&mut self, envelope: Envelope, tag: T) -> Result<(), Full> {
        let size = size_of(&envelope);
        let outstanding = self.queued.len() + self.undecided.len();
        let is_full = outstanding >= self.limits.outstanding
            || (outstanding > 0 && self.bytes + size > self.limits.outstanding_bytes)
            || self.unanswered.len() >= self.limits.unanswered;
        if self.state == State::Closed {
            return Err(Full(Box::new(envelope)));
        }
        let (limit, length) = (self.limits.message, envelope.payload.len() + envelope.entity.len());
        if length > limit {
            let text = format!("message of {length} bytes exceeds the limit of {limit} bytes");
            self.report(tag, Event::Refused(Refusal::Unsupported(text)));
            return Ok(());
        }
        if is_full {
            return Err(Full(Box::new(envelope)));
        }
        self.bytes += size;
        self.queued.push_back((envelope, tag));
        Ok(())
    }

    /// Begins to send.
    pub(crate) fn open(&mut self) {
        if self.state == State::Waiting {
            self.state = State::Open;
        }
    }

    /// Moves queued envelopes into a frame, as many as fit. Envelopes whose deadline has passed are
    /// returned.
    pub(crate) fn fill(&mut self, now: Instant) -> Option<Forward> {
        if self.state != State::Open {
            return None;
        }
        let first = self.last_sent + 1;
        let mut envelopes = Vec::new();
        let mut length = 0;
        while length < self.limits.frame {
            let Some((envelope, tag)) = self.queued.pop_front() else { break };
            let size = size_of(&envelope);
            if envelope.deadline > now && length > 0 && length + size > self.limits.frame {
                self.queued.push_front((envelope, tag));
                break;
            }
            if envelope.deadline <= now || !envelope.ticket.send() {
                self.bytes -= size;
                self.report(tag, Event::Returned(EXPIRED.to_owned()));
                continue;
            }
            length += size;
            self.last_sent += 1;
            self.undecided.insert(self.last_sent, Sent { tag, is_ask: envelope.is_ask, size });
            envelopes.push(Parcel::pack(envelope, now));
        }
        (!envelopes.is_empty()).then(|| Forward { first, envelopes, ..Forward::default() })
    }

    /// Returns queued envelopes whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        for (envelope, tag) in mem::take(&mut self.queued) {
            if envelope.deadline <= now {
                self.bytes -= size_of(&envelope);
                self.report(tag, Event::Returned(EXPIRED.to_owned()));
            } else {
                self.queued.push_back((envelope, tag));
            }
        }
    }

    /// Returns whether there are envelopes to send, and others are on their way: their senders may send again
    /// in a moment, in the same frame.
    pub(crate) fn expects_more_envelopes(&self) -> bool {
        let has_sent = !self.undecided.is_empty() || !self.unanswered.is_empty();
        self.state == State::Open && !self.queued.is_empty() && has_sent
    }

    /// Returns the earliest deadline of a queued envelope.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.queued.iter().map(|(envelope, _)| envelope.deadline).min()
    }

    /// Applies the peer's answers. After an error the link must be ended.
    pub(crate) fn answered(&mut self, frame: Backward) -> Result<(), Violation> {
        let Backward { decided, mut admitted, refused, replied, .. } = frame;
        let numbers = admitted.iter().chain(refused.iter().map(|refused| &refused.number));
        let numbers = numbers.chain(replied.iter().map(|replied| &replied.number));
        let newest = numbers.chain([&decided]).max().copied().unwrap_or_default();
        if newest > self.last_sent {
            let last = self.last_sent;
            return Err(Violation(format!("answered envelope {newest}, but the last was {last}")));
        }
        // Refusals come first: the others up to `decided` were admitted.
        for refused in refused {
            if let Some(sent) = self.undecided.remove(&refused.number) {
                self.bytes -= sent.size;
                self.report(sent.tag, Event::Refused(refused.why.into()));
            }
        }
        let fresh = self.effects.len();
        while let Some(entry) = self.undecided.first_entry() {
            if *entry.key() > decided {
                break;
            }
            let (number, sent) = entry.remove_entry();
            self.admit(number, sent);
        }
        admitted.sort_unstable();
        for number in admitted {
            if let Some(sent) = self.undecided.remove(&number) {
                self.admit(number, sent);
            }
        }
        // Sorted by number: those in `admitted` come after `decided`.
        let end = self.effects.len();
        for replied in replied {
            let number = replied.number;
            let reply = Event::Replied(replied.reply());
            if let Some(tag) = self.unanswered.remove(&number) {
                self.report(tag, reply);
                continue;
            }
            let now_admitted =
                self.effects[fresh..end].binary_search_by_key(&number, |it| it.number);
            if let Ok(index) = now_admitted {
                let effect = &mut self.effects[fresh + index];
                if mem::take(&mut effect.is_unanswered) {
                    effect.then = Some(reply);
                }
            } else if self.undecided.get(&number).is_some_and(|sent| sent.is_ask)
                && let Some(sent) = self.undecided.remove(&number)
            {
                // A reply implies that the envelope was admitted.
                self.bytes -= sent.size;
                let (tag, first, then) = (sent.tag, Event::Admitted, Some(reply));
                self.effects.push(Effect { number, tag, first, then, is_unanswered: false });
            }
        }
        Ok(())
    }

    fn admit(&mut self, number: u64, sent: Sent<T>) {
        let Sent { tag, is_ask, size } = sent;
        self.bytes -= size;
        let first = Event::Admitted;
        self.effects.push(Effect { number, tag, first, then: None, is_unanswered: is_ask });
    }

    /// Takes back an ask whose admission was reported, to wait for its reply.
    pub(crate) fn restore(&mut self, effect: Effect<T>) {
        self.unanswered.insert(effect.number, effect.tag);
    }

    /// Sends nothing more on this link. Queued envelopes wait for the next one.
    pub(crate) fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Finishing;
        }
    }

    /// Returns the queued envelopes. There will be no other link.
    pub(crate) fn close(&mut self, why: &str) {
        self.state = State::Closed;
        self.return_queued(why);
    }

    /// Ends the link: reports what became of every envelope that has no final event.
    ///
    /// `last_read` is the number in the peer's `Bye`, if it sent one.
    pub(crate) fn end(&mut self, last_read: Option<u64>, why: &str) {
        // A link that is finished while nothing was sent cannot change the order: envelopes that
        // were queued since then can wait for the next link.
        let is_idle = self.undecided.is_empty() && self.unanswered.is_empty();
        let keeps_queue = self.state == State::Finishing && is_idle;
        // A number that was never sent proves nothing.
        let last_read = last_read.filter(|last| *last <= self.last_sent).unwrap_or(u64::MAX);
        let mut unanswered: Vec<_> = mem::take(&mut self.unanswered).into_iter().collect();
        unanswered.sort_unstable_by_key(|(number, _)| *number);
        for (_, tag) in unanswered {
            self.report(tag, Event::Lost(why.to_owned()));
        }
        for (number, sent) in mem::take(&mut self.undecided) {
            self.bytes -= sent.size;
            let why = why.to_owned();
            let event = if number > last_read { Event::Returned(why) } else { Event::Lost(why) };
            self.report(sent.tag, event);
        }
        if !keeps_queue {
            self.return_queued(why);
        }
        self.last_sent = 0;
        if self.state != State::Closed {
            self.state = State::Waiting;
        }
    }

    fn return_queued(&mut self, why: &str) {
        for (envelope, tag) in mem::take(&mut self.queued) {
            self.bytes -= size_of(&envelope);
            self.report(tag, Event::Returned(why.to_owned()));
        }
    }

    fn report(&mut self, tag: T, event: Event) {
        let effect = Effect { number: 0, tag, first: event, then: None, is_unanswered: false };
        self.effects.push(effect);
    }

    /// Returns the events that are to be reported now.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }

    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Returns whether something is queued.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Returns whether nothing is queued, sent or to be reported.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued.is_empty()
            && self.undecided.is_empty()
            && self.unanswered.is_empty()
            && self.effects.is_empty()
    }

    /// Returns whether the current link sends nothing more.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finishing | State::Closed)
    }
}

const EXPIRED: &str = "the deadline passed before it was sent";

#[cfg(test)]
mod tests;
