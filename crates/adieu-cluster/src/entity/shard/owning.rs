//! The owner's side of a shard: which messages enter, and how it is given away.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::after::After;
use super::core::Core;
use super::{Arrived, From, Inner, Killed, Shard};
use crate::entity::letter::{Content, Letter, ReplyTo};
use crate::entity::mailbox::{Named, Next, Pill, Slot};
use crate::grant::Grant;
use crate::message::{Command, decode};
use crate::region::{Arrival, Decision};
use crate::store::Revision;
use crate::time::{Instant, now};
use crate::transport::{Answer, Envelope, Event, MessageId, Refusal, Reply};

/// Holds a shard open: it is handed over after its last pass was dropped.
pub(crate) struct Pass {
    pub(crate) epoch: Revision,
    closing: CancellationToken,
    leave: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Reports to the sender's side of the same shard.
pub(super) struct Loopback<C: Command> {
    pub(super) shard: Arc<Shard<C>>,
    pub(super) number: u64,
}

// === impl Shard ===

impl<C: Command> Shard<C> {
    /// Decides about a message of another node.
    pub(crate) fn receive(&self, envelope: Envelope, answer: Box<dyn Answer>) {
        // Before the lock is taken. One task receives what one node has sent, so its order is kept.
        let command = (!envelope.is_request).then(|| decode::<C>(&envelope.payload));
        self.change(|inner, after| {
            let arrived = Arrived { envelope, command, from: From::There(answer) };
            let event = self.arrive(inner, arrived, now(), after);
            debug_assert!(event.is_none(), "another node is answered by its transport");
        });
    }

    /// Decides about a message. Returns its outcome if this node has sent it.
    pub(super) fn arrive(
        &self,
        inner: &mut Inner<C>,
        arrived: Arrived<C>,
        now: Instant,
        after: &mut After<C>,
    ) -> Option<Event> {
        let Envelope { id, epoch, is_nested, deadline, .. } = arrived.envelope;
        if !self.core.here.is_good() {
            return turn_away(arrived, Refusal::Moving { newer: None }, after);
        }
        match inner.admission.receive(Arrival { id, epoch, is_nested, deadline }, now) {
            Decision::Admit => self.admit(inner, arrived, after),
            Decision::Refuse(refusal) => turn_away(arrived, refusal, after),
            Decision::Hold => {
                after.replaced.extend(inner.held.insert(id, arrived));
                None
            }
        }
    }

    /// Carries out decisions about messages that were held.
    pub(super) fn decided(
        &self,
        inner: &mut Inner<C>,
        decided: Vec<(MessageId, Decision)>,
        after: &mut After<C>,
    ) {
        for (id, decision) in decided {
            let Some(arrived) = inner.held.remove(&id) else { continue };
            let event = match decision {
                Decision::Admit => self.admit(inner, arrived, after),
                Decision::Refuse(refusal) => turn_away(arrived, refusal, after),
                Decision::Hold => None,
            };
            if let Some(event) = event {
                let (now, mut effects) = (now(), Vec::new());
                inner.route.on(id.sequence, event, now, &mut effects);
                self.carry_out(inner, effects, now, after);
            }
        }
    }

    /// Puts a message into the mailbox of its entity. The admission has counted it.
    fn admit(
        &self,
        inner: &mut Inner<C>,
        arrived: Arrived<C>,
        after: &mut After<C>,
    ) -> Option<Event> {
        if arrived.envelope.is_request {
            return self.admit_request(inner, arrived, after);
        }
        let Arrived { envelope, command, from } = arrived;
        let Envelope { entity, id, is_ask, deadline, payload, .. } = envelope;
        let mut content = match command {
            Some(Ok(command)) => Some(Content::Command(command)),
            None => Some(Content::Encoded(payload)),
            Some(Err(error)) => {
                inner.admission.leave();
                return refuse(from, self.core.undecoded(&error), after);
            }
        };
        let is_here = matches!(from, From::Here);
        let mut from = Some(from);
        let put = inner.put(&self.core, &entity, || {
            let to = match (from.take()?, is_ask) {
                (From::There(mut answer), is_ask) => {
                    answer.admit();
                    if is_ask { ReplyTo::There(answer) } else { ReplyTo::NoReceiver }
                }
                (From::Here, true) => {
                    let shard = self.this.upgrade()?;
                    ReplyTo::There(Box::new(Loopback { shard, number: id.sequence }))
                }
                (From::Here, false) => ReplyTo::NoReceiver,
            };
            Some(Letter { content: content.take()?, id, deadline, to })
        });
        if let Some(Content::Command(command)) = content {
            after.discarded.push(command);
        }
        match (put, from) {
            (Ok((slot, next)), _) => {
                after.received(&slot, next);
                // A transport was notified before the message was put into the mailbox.
                is_here.then_some(Event::Admitted)
            }
            (Err(refusal), Some(from)) => refuse(from, refusal, after),
            (Err(_), None) => None,
        }
    }

    // --- the door ---

    /// Applies the grant of a view, and the epoch under which this node owns the shard. Returns
    /// whether the shard has opened.
    pub(crate) fn see(&self, grant: &Grant, mine: Option<Revision>) -> bool {
        self.change(|inner, after| {
            let (now, before) = (now(), inner.admission.open());
            let mut decided = Vec::new();
            if let Some(epoch) = mine.filter(|epoch| inner.epoch < *epoch) {
                inner.epoch = epoch;
                inner.closing = CancellationToken::new();
                inner.running.open();
            }
            if grant.is_newer_than(&inner.grant) {
                inner.grant = grant.clone();
            }
            // First the owner's side: what the route sends now may be for this node.
            inner.admission.see(grant.clone(), mine, now, &mut decided);
            self.decided(inner, decided, after);
            self.see_grant(inner, grant.clone(), now, after);
            inner.admission.open().is_some_and(|epoch| before != Some(epoch))
        })
    }

    /// Drains the shard: until `nested_until` it admits only messages from entities, and every
    /// entity ends after its last mail.
    pub(crate) fn drain(&self, nested_until: Instant) {
        self.change(|inner, after| {
            if inner.admission.open().is_none() {
                return;
            }
            inner.admission.drain(nested_until);
            let slots = inner.slots.iter();
            let wakers = slots.filter_map(|Named(slot)| slot.lock().end_after_mail(Pill::Drain));
            after.wake.extend(wakers);
            after.cancel = Some(inner.closing.clone());
        });
    }

    /// Hands the shard over if it is drained. From then on nothing enters it. Returns whether it is.
    pub(crate) fn hand_over(&self) -> bool {
        self.lock().admission.hand_over()
    }

    /// Closes the shard for good, because this node has lost its place. Returns the entities that
    /// were dropped.
    pub(crate) fn lose(&self) -> Vec<Killed> {
        self.change(|inner, after| {
            let mut decided = Vec::new();
            inner.admission.lose(&mut decided);
            self.decided(inner, decided, after);
        });
        self.kill()
    }

    /// Returns a token that fires when the shard is to be handed over.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.lock().closing.clone()
    }

    /// Holds the shard open, if this node owns it.
    pub(crate) fn enter(&self) -> Result<Pass, Grant> {
        let mut inner = self.lock();
        let open = inner.admission.open().filter(|_| self.core.here.is_good());
        let Some(epoch) = open else { return Err(inner.grant.clone()) };
        inner.admission.enter();
        inner.passes += 1;
        let this = self.this.clone();
        let leave = move || {
            if let Some(this) = this.upgrade() {
                this.change(|inner, after| {
                    inner.passes -= 1;
                    inner.admission.leave();
                    after.is_drained = inner.admission.inside() == 0;
                });
            }
        };
        Ok(Pass { epoch, closing: inner.closing.clone(), leave: Some(Box::new(leave)) })
    }
}

/// Refuses a message, and discards its command. Returns the event if this node has sent it.
fn turn_away<C: Command>(
    arrived: Arrived<C>,
    refusal: Refusal,
    after: &mut After<C>,
) -> Option<Event> {
    after.discarded.extend(arrived.command.and_then(Result::ok));
    refuse(arrived.from, refusal, after)
}

/// Refuses a message. Returns the event if this node has sent it.
pub(super) fn refuse<C: Command>(
    from: From,
    refusal: Refusal,
    after: &mut After<C>,
) -> Option<Event> {
    match from {
        From::There(answer) => {
            after.refuse.push((answer, refusal));
            None
        }
        From::Here => Some(Event::Refused(refusal)),
    }
}

// === impl Inner ===

impl<C: Command> Inner<C> {
    /// Puts a message into the mailbox of an entity, which may be new. `letter` is called if there is
    /// room. The admission has counted the message: that count stays for a new entity.
    pub(super) fn put(
        &mut self,
        core: &Core<C>,
        entity: &str,
        letter: impl FnOnce() -> Option<Letter<C>>,
    ) -> Result<(Arc<Slot<C>>, Next), Refusal> {
        if let Some(Named(slot)) = self.slots.get(entity) {
            self.admission.leave();
            let mut mailbox = slot.lock();
            if mailbox.queue.len() >= core.mailbox {
                return Err(Refusal::Busy);
            }
            let next = letter().map_or(Next::Nothing, |letter| mailbox.push(letter));
            drop(mailbox);
            return Ok((Arc::clone(slot), next));
        }
        if let Some(full) = core.here.starts.refusal() {
            self.admission.leave();
            return Err(Refusal::Overloaded(full));
        }
        let slot = Arc::new(Slot::new(entity.into(), self.pill(), now()));
        let next = letter().map_or(Next::Nothing, |letter| slot.lock().push(letter));
        self.slots.insert(Named(Arc::clone(&slot)));
        Ok((slot, next))
    }

    /// Returns the pill of an entity that starts now.
    pub(super) fn pill(&self) -> Pill {
        if self.admission.open().is_some() { Pill::None } else { Pill::Drain }
    }
}

// === impl Loopback ===

impl<C: Command> Answer for Loopback<C> {
    fn admit(&mut self) {}

    fn refuse(self: Box<Self>, refusal: Refusal) {
        self.shard.happened(self.number, Event::Refused(refusal));
    }

    fn reply(self: Box<Self>, reply: Reply) {
        self.shard.happened(self.number, Event::Replied(reply));
    }
}

impl<C: Command> fmt::Debug for Loopback<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").field("number", &self.number).finish_non_exhaustive()
    }
}

// === impl Pass ===

impl Pass {
    /// Waits until the shard is to be handed over.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave();
        }
    }
}
