//! The envelopes on their way to one peer, shared by the callers that send, the HTTP/2 stream that takes
//! frames, and the dialler that delivers events.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::{Notify, oneshot};
use tokio_stream::Stream;

use super::frame::{Backward, Forward, Hello, Prepare};
use super::limits::Limits;
use super::machine::{Outgoing, Violation};
use super::turn::Turn;
use crate::records::ShardId;
use crate::time::{Instant, now};
use crate::transport::{Envelope, Full, OnEvent, Peer};

/// The envelopes on their way to one peer.
pub(super) struct Lane {
    pub(super) peer: Peer,
    state: Mutex<State>,
    /// Wakes the dialler.
    wake: Notify,
}

struct State {
    address: Arc<str>,
    machine: Outgoing<OnEvent>,
    /// Requests to prepare that were not sent.
    prepares: VecDeque<Prepare>,
    preparing: HashMap<u64, oneshot::Sender<Result<(), String>>>,
    last_prepare: u64,
    /// The number of the current link. The stream of an earlier one takes nothing more.
    link: u64,
    is_open: bool,
    stream: Option<Waker>,
    last_use: Instant,
    /// A link has ended, and what became of its envelopes is being reported. Until that is done, the
    /// lane accepts nothing: a new envelope would overtake those that are still to be returned.
    is_ending: bool,
    /// The dialler has ended, and another lane takes the place of this one.
    is_retired: bool,
}

/// The result of pushing an envelope.
pub(super) enum Pushed {
    Queued,
    Full(Full),
    /// The lane is retired: use a new one.
    Retired(Envelope, OnEvent),
}

/// The frames of one link.
pub(super) struct Outbound {
    lane: Arc<Lane>,
    link: u64,
    hello: Option<Hello>,
    turn: Turn,
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(peer: Peer, address: &str, limits: Limits) -> Self {
        let state = State {
            address: address.into(),
            machine: Outgoing::new(limits),
            prepares: VecDeque::new(),
            preparing: HashMap::new(),
            last_prepare: 0,
            link: 0,
            is_open: false,
            stream: None,
            last_use: now(),
            is_ending: false,
            is_retired: false,
        };
        Self { peer, state: Mutex::new(state), wake: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, address: &str, envelope: Envelope, on_event: OnEvent) -> Pushed {
        let mut state = self.state();
        if state.is_retired {
            return Pushed::Retired(envelope, on_event);
        }
        state.reach_at(address);
        if state.is_ending {
            return Pushed::Full(Full(Box::new(envelope)));
        }
        if let Err(full) = state.machine.push(envelope, on_event) {
            return Pushed::Full(full);
        }
        let wakes_dialler = !state.is_open || state.machine.has_effects();
        let stream = state.stream.take();
        drop(state);
        self.wake_up(wakes_dialler, stream);
        Pushed::Queued
    }

    /// Queues a request to prepare. `None` if the lane is retired.
    pub(super) fn prepare(
        &self,
        address: &str,
        shard: &ShardId,
    ) -> Option<oneshot::Receiver<Result<(), String>>> {
        let mut state = self.state();
        if state.is_retired {
            return None;
        }
        state.reach_at(address);
        state.last_prepare += 1;
        let id = state.last_prepare;
        let (sender, receiver) = oneshot::channel();
        // Requests whose callers have gone are removed here, because no other event reports them.
        state.preparing.retain(|_, sender| !sender.is_closed());
        state.preparing.insert(id, sender);
        let region = shard.region.as_ref().to_owned();
        state.prepares.push_back(Prepare { id, region, shard: shard.number });
        let wakes_dialler = !state.is_open;
        let stream = state.stream.take();
        drop(state);
        self.wake_up(wakes_dialler, stream);
        Some(receiver)
    }

    fn wake_up(&self, wakes_dialler: bool, stream: Option<Waker>) {
        if let Some(stream) = stream {
            stream.wake();
        }
        if wakes_dialler {
            self.wake.notify_one();
        }
    }

    /// Waits until the dialler may have something to do.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(super) fn address(&self) -> Arc<str> {
        Arc::clone(&self.state().address)
    }

    /// Returns whether something waits for a link.
    pub(super) fn needs_link(&self) -> bool {
        let state = self.state();
        state.machine.has_queued() || !state.prepares.is_empty()
    }

    /// Returns the frames of a new link, which begins with this hello.
    pub(super) fn begin(self: &Arc<Self>, link: u64, hello: Hello) -> Outbound {
        self.state().link = link;
        Outbound { lane: Arc::clone(self), link, hello: Some(hello), turn: Turn::new() }
    }

    /// Records that the peer has accepted the link.
    pub(super) fn open(&self) {
        let mut state = self.state();
        state.is_open = true;
        state.last_use = now();
        state.machine.open();
        let stream = state.stream.take();
        drop(state);
        self.wake_up(false, stream);
    }

    /// Applies what the peer has sent, and reports it.
    pub(super) fn answered(&self, frame: Backward) -> Result<(), Violation> {
        let mut state = self.state();
        for prepared in &frame.prepared {
            if let Some(sender) = state.preparing.remove(&prepared.id) {
                // The caller may have given up.
                let _ = sender.send(prepared.declined.clone().map_or(Ok(()), Err));
            }
        }
        state.machine.answered(frame)?;
        drop(state);
        self.deliver();
        Ok(())
    }

    /// Reports events to the senders of the envelopes, outside of the lock. Only the dialler calls
    /// it, so the events of an envelope keep their order.
    pub(super) fn deliver(&self) {
        let effects = self.state().machine.take_effects();
        if effects.is_empty() {
            return;
        }
        let mut unanswered = Vec::new();
        for mut effect in effects {
            (effect.tag)(effect.first.clone());
            if let Some(then) = effect.then.take() {
                (effect.tag)(then);
            } else if effect.is_unanswered {
                unanswered.push(effect);
            }
        }
        if !unanswered.is_empty() {
            let mut state = self.state();
            for effect in unanswered {
                state.machine.restore(effect);
            }
        }
    }

    /// Returns queued envelopes whose deadline has passed, and the next deadline.
    pub(super) fn expire(&self) -> Option<Instant> {
        let mut state = self.state();
        state.machine.expire(now());
        let next = state.machine.first_deadline();
        drop(state);
        self.deliver();
        next
    }

    /// Sends nothing more on the current link if it was not used since then. Returns the time of its
    /// last use if it is used.
    pub(super) fn finish_if_unused_since(&self, since: Instant) -> Result<(), Instant> {
        let mut state = self.state();
        let is_idle = state.machine.is_idle() && state.preparing.is_empty();
        if state.last_use > since || !is_idle {
            return Err(state.last_use);
        }
        state.is_open = false;
        state.machine.finish();
        let stream = state.stream.take();
        drop(state);
        self.wake_up(false, stream);
        Ok(())
    }

    /// Returns the queued envelopes: there will be no other link.
    pub(super) fn close(&self, why: &str) {
        let mut state = self.state();
        state.is_open = false;
        state.machine.close(why);
        let stream = state.stream.take();
        drop(state);
        self.wake_up(false, stream);
        self.deliver();
    }

    /// Ends the link, and reports what became of everything that was on its way. Meanwhile the lane
    /// accepts nothing.
    pub(super) fn end(&self, last_read: Option<u64>, why: &str) {
        self.deliver();
        let mut state = self.state();
        state.is_open = false;
        state.link = 0;
        state.machine.end(last_read, why);
        state.is_ending = state.machine.has_effects();
        state.prepares.clear();
        let preparing = std::mem::take(&mut state.preparing);
        let stream = state.stream.take();
        drop(state);
        self.wake_up(false, stream);
        for (_, sender) in preparing {
            let _ = sender.send(Err(why.to_owned()));
        }
        self.deliver();
        self.state().is_ending = false;
    }

    /// Ends the lane if nothing is on its way.
    pub(super) fn retire(&self) -> bool {
        let mut state = self.state();
        let is_idle = state.machine.is_idle() && state.preparing.is_empty();
        state.is_retired |= is_idle;
        is_idle
    }
}

impl State {
    fn reach_at(&mut self, address: &str) {
        if &*self.address != address {
            self.address = address.into();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("peer", &self.peer).finish_non_exhaustive()
    }
}

// === impl Outbound ===

impl Stream for Outbound {
    type Item = Forward;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Forward>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Forward { hello: Some(hello), ..Forward::default() }));
        }
        let Self { lane, link, turn, .. } = &mut *self;
        let mut state = lane.state();
        if state.link != *link {
            return Poll::Ready(None);
        }
        if state.is_open {
            if state.machine.expects_more_envelopes() && turn.poll(cx).is_pending() {
                state.stream = Some(cx.waker().clone());
                return Poll::Pending;
            }
            turn.end();
            let now = now();
            let mut frame = state.machine.fill(now);
            if !state.prepares.is_empty() {
                let prepares = std::mem::take(&mut state.prepares);
                frame.get_or_insert_default().prepares = prepares.into();
            }
            // Envelopes that expired in the queue are reported by the dialler.
            let wakes_dialler = state.machine.has_effects();
            if frame.is_some() {
                state.last_use = now;
            } else {
                state.stream = Some(cx.waker().clone());
            }
            drop(state);
            lane.wake_up(wakes_dialler, None);
            return frame.map_or(Poll::Pending, |frame| Poll::Ready(Some(frame)));
        }
        if state.machine.is_finished() {
            return Poll::Ready(None);
        }
        state.stream = Some(cx.waker().clone());
        Poll::Pending
    }
}
