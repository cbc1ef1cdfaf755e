//! A link that another node has dialled: what was read, and the answers to it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::frame::{Backward, Forward, Parcel, Prepared};
use super::inbox::Incoming;
use super::limits::Limits;
use super::machine::Violation;
use super::turn::Turn;
use crate::time::now;
use crate::transport::{Answer, Peer, Receiver, Refusal, Reply};

/// A link that another node has dialled.
pub(super) struct Inbound {
    pub(super) peer: Peer,
    /// The number of the link at the peer. A newer link has a higher one.
    pub(super) link: u64,
    receiver: Arc<dyn Receiver>,
    /// Held while a frame is handed to the receiver. So the code that stops the link knows that nothing of
    /// it is received afterwards.
    reading: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    machine: Incoming,
    stream: Option<Waker>,
    /// How many requests to prepare are running.
    preparing: usize,
    /// Sending has ended.
    is_over: bool,
}

/// How many requests to prepare may run for one peer. More are declined.
const PREPARES_AT_ONCE: usize = 1_024;

/// Answers one envelope.
struct LinkAnswer {
    link: Arc<Inbound>,
    number: u64,
    is_ask: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Undecided,
    Admitted,
    Finished,
}

/// The next action of the link's stream.
pub(super) enum Next {
    Send(Backward),
    Wait,
    End,
}

// === impl Inbound ===

impl Inbound {
    pub(super) fn new(peer: Peer, link: u64, receiver: Arc<dyn Receiver>, limits: Limits) -> Self {
        let state =
            State { machine: Incoming::new(limits), stream: None, preparing: 0, is_over: false };
        Self { peer, link, receiver, reading: Mutex::new(()), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether frames are read now. Called by the stream while it is polled, so answers
    /// that are given meanwhile need not wake it.
    pub(super) fn is_reading(&self) -> bool {
        let mut state = self.state();
        state.stream = None;
        state.machine.is_reading() && !state.machine.is_congested()
    }

    /// Hands the envelopes of a frame to the receiver, unless the link was stopped.
    pub(super) fn read(self: &Arc<Self>, frame: Forward) -> Result<(), Violation> {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Frames of a node that was removed from the cluster count as not read.
        if !self.receiver.knows(&self.peer) {
            drop(reading);
            self.stop();
            return Ok(());
        }
        let Forward { first, envelopes, .. } = frame;
        if envelopes.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        if !state.machine.is_reading() {
            return Ok(());
        }
        state.machine.read(first, envelopes.len())?;
        drop(state);
        let now = now();
        for (number, parcel) in (first..).zip(envelopes) {
            let (link, is_ask) = (Arc::clone(self), parcel.is_ask);
            let answer = LinkAnswer { link, number, is_ask, stage: Stage::Undecided };
            self.receiver.receive(&self.peer, Parcel::unpack(parcel, now), Box::new(answer));
        }
        Ok(())
    }

    /// Stops reading. When this returns, no further envelope of the link is received.
    pub(super) fn stop(&self) {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.change(Incoming::stop);
        drop(reading);
    }

    pub(super) fn peer_finished(&self) {
        self.change(Incoming::peer_finished);
    }

    /// Counts a request to prepare, unless too many are running.
    pub(super) fn begin_prepare(&self) -> bool {
        let preparing = &mut self.state().preparing;
        *preparing += 1;
        *preparing <= PREPARES_AT_ONCE
    }

    pub(super) fn prepared(&self, id: u64, prepared: Result<(), String>) {
        self.state().preparing -= 1;
        self.change(|machine| machine.prepared(Prepared { id, declined: prepared.err() }));
    }

    /// Records that the connection has ended. From now on answers are discarded.
    pub(super) fn end(&self) {
        self.stop();
        self.state().is_over = true;
    }

    fn change(&self, change: impl FnOnce(&mut Incoming)) {
        let mut state = self.state();
        if state.is_over {
            return;
        }
        change(&mut state.machine);
        let stream = state.stream.take();
        drop(state);
        if let Some(stream) = stream {
            stream.wake();
        }
    }

    /// Returns the next frame for the peer, or remembers to wake the stream. A frame that may get more
    /// answers in a moment waits for a turn.
    pub(super) fn next(&self, cx: &Context<'_>, turn: &mut Turn) -> Next {
        let mut state = self.state();
        if state.machine.expects_more_answers() && turn.poll(cx).is_pending() {
            state.stream = Some(cx.waker().clone());
            return Next::Wait;
        }
        turn.end();
        match state.machine.next_frame() {
            Some(frame) => Next::Send(frame),
            None if state.machine.is_over() => Next::End,
            None => {
                state.stream = Some(cx.waker().clone());
                Next::Wait
            }
        }
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("peer", &self.peer).finish_non_exhaustive()
    }
}

// === impl LinkAnswer ===

impl Answer for LinkAnswer {
    fn admit(&mut self) {
        if self.stage == Stage::Undecided {
            self.stage = Stage::Admitted;
            self.link.change(|machine| machine.admit(self.number, self.is_ask));
        }
    }

    fn refuse(mut self: Box<Self>, refusal: Refusal) {
        match self.stage {
            Stage::Undecided => {
                self.stage = Stage::Finished;
                self.link.change(|machine| machine.refuse(self.number, refusal));
            }
            // It was admitted, so only its reply can report that it did not run.
            Stage::Admitted => self.finish(Reply::NotRun(refusal)),
            Stage::Finished => {}
        }
    }

    fn reply(mut self: Box<Self>, reply: Reply) {
        self.admit();
        self.finish(reply);
    }
}

impl LinkAnswer {
    fn finish(&mut self, reply: Reply) {
        if self.stage == Stage::Admitted {
            self.stage = Stage::Finished;
            if self.is_ask {
                self.link.change(|machine| machine.reply(self.number, reply));
            }
        }
    }
}

impl Drop for LinkAnswer {
    fn drop(&mut self) {
        match self.stage {
            Stage::Undecided => {
                let moving = Refusal::Moving { newer: None };
                self.link.change(|machine| machine.refuse(self.number, moving));
            }
            Stage::Admitted => self.finish(Reply::Unknown("the handler did not reply".to_owned())),
            Stage::Finished => {}
        }
    }
}

impl fmt::Debug for LinkAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkAnswer")
            .field("peer", &self.link.peer)
            .field("number", &self.number)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
