//! The receiving side of one link: which envelopes were read, and which answers are to be sent.

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use super::frame::{Backward, Bye, Prepared, Refused, Replied};
use super::limits::Limits;
use super::machine::Violation;
use crate::transport::{Refusal, Reply};

/// The receiving side of one link.
#[derive(Debug)]
pub(crate) struct Incoming {
    limits: Limits,
    last_read: u64,
    /// Each envelope up to this one was admitted or refused.
    decided: u64,
    /// Later envelopes that were admitted or refused.
    ahead: BTreeSet<u64>,
    /// The value of `decided` that the peer knows.
    reported: u64,
    /// Asks that were read and are not finished, and tells that are undecided.
    unfinished: usize,
    admitted: Vec<u64>,
    refused: Vec<Refused>,
    replied: VecDeque<Replied>,
    replied_bytes: usize,
    prepared: Vec<Prepared>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Reading,
    /// The peer sends nothing more. The link ends when everything is answered.
    Read,
    /// Nothing more is read. The link ends when the answers that are queued are sent.
    Stopped,
    /// `Bye` was sent.
    Over,
}

// === impl Incoming ===

impl Incoming {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            last_read: 0,
            decided: 0,
            ahead: BTreeSet::new(),
            reported: 0,
            unfinished: 0,
            admitted: Vec::new(),
            refused: Vec::new(),
            replied: VecDeque::new(),
            replied_bytes: 0,
            prepared: Vec::new(),
            stage: Stage::Reading,
        }
    }

    /// Counts the envelopes of a frame as read.
    pub(crate) fn read(&mut self, first: u64, count: usize) -> Result<(), Violation> {
        let expected = self.last_read + 1;
        if first != expected {
            return Err(Violation(format!("sent envelope {first} in place of {expected}")));
        }
        let last = self.last_read + count as u64;
        let undecided = (last - self.decided) as usize - self.ahead.len();
        let limit = self.limits.outstanding;
        if undecided > limit {
            let text = format!("sent {undecided} undecided envelopes, but the limit is {limit}");
            return Err(Violation(text));
        }
        self.last_read = last;
        self.unfinished += count;
        Ok(())
    }

    /// Reports that an envelope was admitted.
    pub(crate) fn admit(&mut self, number: u64, is_ask: bool) {
        if !self.decide(number) {
            self.admitted.push(number);
        }
        if !is_ask {
            self.unfinished -= 1;
        }
    }

    /// Reports that an envelope was refused.
    pub(crate) fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.decide(number);
        self.unfinished -= 1;
        self.refused.push(Refused { number, why: Some(refusal.into()) });
    }

    /// Reports the reply to an ask that was admitted.
    pub(crate) fn reply(&mut self, number: u64, reply: Reply) {
        self.unfinished -= 1;
        let limit = self.limits.message;
        let mut replied = Replied::new(number, reply);
        let length = replied.payload.len();
        if length > limit {
            let text = format!("reply of {length} bytes exceeds the limit of {limit} bytes");
            replied = Replied::new(number, Reply::Unknown(text));
        }
        self.replied_bytes += size_of(&replied);
        self.replied.push_back(replied);
    }

    pub(crate) fn prepared(&mut self, prepared: Prepared) {
        self.prepared.push(prepared);
    }

    /// Returns whether `decided` covers this envelope.
    fn decide(&mut self, number: u64) -> bool {
        if number != self.decided + 1 {
            self.ahead.insert(number);
            return false;
        }
        self.decided = number;
        while self.ahead.remove(&(self.decided + 1)) {
            self.decided += 1;
        }
        true
    }

    /// Returns whether so many answers are queued that nothing more should be read.
    pub(crate) fn is_congested(&self) -> bool {
        self.replied_bytes > self.limits.answer_bytes
    }

    /// Counts nothing more as read.
    pub(crate) fn stop(&mut self) {
        self.stage = self.stage.max(Stage::Stopped);
    }

    /// Records that the peer has ended its side of the link in the regular way.
    pub(crate) fn peer_finished(&mut self) {
        self.stage = self.stage.max(Stage::Read);
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.stage == Stage::Reading
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn has_answers(&self) -> bool {
        self.decided != self.reported
            || !self.admitted.is_empty()
            || !self.refused.is_empty()
            || !self.replied.is_empty()
            || !self.prepared.is_empty()
    }

    /// Returns whether there are answers to send, and others may follow in a moment that could be sent in the
    /// same frame.
    pub(crate) fn expects_more_answers(&self) -> bool {
        self.has_answers() && self.unfinished > 0 && self.stage < Stage::Stopped
    }

    /// Returns the next frame for the peer: all decisions, and replies up to the size of a frame.
    pub(crate) fn next_frame(&mut self) -> Option<Backward> {
        let mut frame = Backward {
            decided: self.decided,
            admitted: mem::take(&mut self.admitted),
            // All of them, because `decided` may cover them.
            refused: mem::take(&mut self.refused),
            prepared: mem::take(&mut self.prepared),
            ..Backward::default()
        };
        let mut length = 0;
        while let Some(replied) = self.replied.front() {
            let size = size_of(replied);
            if length > 0 && length + size > self.limits.frame {
                break;
            }
            length += size;
            self.replied_bytes -= size;
            frame.replied.extend(self.replied.pop_front());
        }
        let is_answered = self.replied.is_empty();
        let is_ending = match self.stage {
            Stage::Reading | Stage::Over => false,
            Stage::Read => is_answered && self.unfinished == 0,
            Stage::Stopped => is_answered,
        };
        if is_ending {
            self.stage = Stage::Over;
            frame.bye = Some(Bye { last_read: self.last_read });
        }
        let is_empty = frame.decided == self.reported
            && frame.admitted.is_empty()
            && frame.refused.is_empty()
            && frame.replied.is_empty()
            && frame.prepared.is_empty()
            && frame.bye.is_none();
        self.reported = frame.decided;
        (!is_empty).then_some(frame)
    }
}

fn size_of(replied: &Replied) -> usize {
    let why = replied.why.as_ref().map_or(0, |why| why.text.len() + why.owner.len());
    replied.payload.len() + replied.text.len() + why + 32
}
