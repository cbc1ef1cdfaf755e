//! The sender's side of a shard: messages of this node, to an entity here or on another node.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::after::After;
use super::finish::Finish;
use super::{Arrived, From, Inner, Shard};
use crate::entity::letter::{Content, Letter, ReplyTo};
use crate::entity::nested::is_nested;
use crate::entity::reply::{self, Outlet, ReplyReceiver};
use crate::grant::Grant;
use crate::message::{AskError, Command, NotRun, Unknown, encode};
use crate::region::Arrival;
use crate::route::{Effect, Kind, Outgoing};
use crate::store::Revision;
use crate::time::{Instant, now};
use crate::transport::{
    Envelope, Event, Full, MessageId, NO_LINKS, OnEvent, Peer, Refusal, Ticket,
};

/// How many bytes of messages to one region this node keeps or has sent without an answer.
const BYTES: usize = 64 << 20;

/// Why a message has no outcome when its node has ended.
const ENDED: &str = "the node that sent it has left the cluster or lost its place before the reply";

/// A message that has no outcome yet.
pub(super) struct Sending<C: Command> {
    entity: Arc<str>,
    payload: Bytes,
    is_nested: bool,
    deadline: Instant,
    /// The ticket of the envelope that was given to the transport last.
    ticket: Ticket,
    pub(super) finish: Finish<C::Reply>,
}

/// An ask that was sent.
pub(crate) struct Sent<R> {
    pub(crate) reply: ReplyReceiver<R>,
    /// The path by which the ask can be cancelled.
    pub(crate) path: Path,
}

/// The way that a message took.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    /// Into the mailbox of an entity of this node.
    Direct,
    /// Through the route, under this number. The route ends it at its deadline.
    Routed(u64),
}

/// A tell that was sent.
pub(crate) enum SentTell {
    Admitted,
    Waits(oneshot::Receiver<Result<(), AskError>>, u64),
}

// === impl Sending ===

impl<C: Command> Sending<C> {
    pub(super) fn entity(&self) -> &Arc<str> {
        &self.entity
    }
}

// === impl Shard ===

impl<C: Command> Shard<C> {
    /// Sends an ask. The shard or the route ends it at its deadline.
    pub(crate) fn ask(
        &self,
        entity: &str,
        command: C,
        kind: Kind,
        now: Instant,
        deadline: Instant,
    ) -> Sent<C::Reply> {
        let (to, reply) = reply::channel();
        let outlet = reply.outlet();
        let mut parts = Some((command, to));
        let letter = |id| {
            let (command, to) = parts.take()?;
            let content = Content::Command(command);
            Some(Letter { content, id, deadline, to: ReplyTo::Here(to) })
        };
        let direct = self.deliver_here(entity, letter, Some(outlet), now, deadline);
        let path = match (direct, parts) {
            (Ok(()), _) | (Err(_), None) => Path::Direct,
            (Err(Some(refusal)), Some((_, to))) => {
                to.send(Err(NotRun::from(refusal).into()));
                Path::Direct
            }
            (Err(None), Some((command, to))) => {
                Path::Routed(self.route(entity, &command, kind, deadline, Finish::Ask(to)))
            }
        };
        Sent { reply, path }
    }

    /// Sends a tell.
    pub(crate) fn tell(
        &self,
        entity: &str,
        command: C,
        deadline: Instant,
    ) -> Result<SentTell, AskError> {
        let mut command = Some(command);
        let letter = |id| {
            let content = Content::Command(command.take()?);
            Some(Letter { content, id, deadline, to: ReplyTo::NoReceiver })
        };
        let direct = self.deliver_here(entity, letter, None, now(), deadline);
        match (direct, command) {
            (Ok(()), _) | (Err(_), None) => Ok(SentTell::Admitted),
            (Err(Some(refusal)), Some(_)) => Err(NotRun::from(refusal).into()),
            (Err(None), Some(command)) => {
                let (to, admitted) = oneshot::channel();
                let number = self.route(entity, &command, Kind::Tell, deadline, Finish::Tell(to));
                Ok(SentTell::Waits(admitted, number))
            }
        }
    }

    /// Puts a message into the mailbox of an entity of this node, if it owns the shard and no message
    /// is before this one. Fails with a refusal that is final, or without one if the message must be
    /// routed.
    fn deliver_here(
        &self,
        entity: &str,
        letter: impl FnOnce(MessageId) -> Option<Letter<C>>,
        outlet: Option<Arc<Outlet<C::Reply>>>,
        now: Instant,
        deadline: Instant,
    ) -> Result<(), Option<Refusal>> {
        let here = &self.core.here;
        let is_nested = is_nested();
        let (slot, next) = {
            let mut inner = self.lock();
            let Some(epoch) = inner.route.direct(&here.id, is_nested) else { return Err(None) };
            if !here.is_good_at(now) {
                return Err(None);
            }
            let id = here.message_id(here.number());
            if !inner.admission.try_admit(&Arrival { id, epoch, is_nested, deadline }, now) {
                return Err(None);
            }
            let (slot, next) = inner.put(&self.core, entity, || letter(id)).map_err(Some)?;
            if let Some(outlet) = outlet {
                inner.deadlines.add(deadline, id, Arc::clone(&slot), outlet);
                self.call_at(&mut inner, deadline);
            }
            (slot, next)
        };
        next.run(|| self.start(&slot));
        Ok(())
    }

    /// Gives a message to the route. Returns its number.
    fn route(
        &self,
        entity: &str,
        command: &C,
        kind: Kind,
        deadline: Instant,
        finish: Finish<C::Reply>,
    ) -> u64 {
        let payload = match encode(command) {
            Ok(payload) => payload,
            Err(error) => {
                let problem = format!("the command cannot be encoded: {error}");
                finish.fail(NotRun::Unsupported(problem).into());
                return 0;
            }
        };
        self.route_encoded(entity, payload, kind, deadline, finish)
    }

    /// As [`Shard::route`], with a message that is encoded.
    pub(super) fn route_encoded(
        &self,
        entity: &str,
        payload: Bytes,
        kind: Kind,
        deadline: Instant,
        finish: Finish<C::Reply>,
    ) -> u64 {
        if !self.core.here.has_begun() {
            finish.fail(NotRun::Outside.into());
            return 0;
        }
        let bytes = self.core.bytes.fetch_add(payload.len(), Ordering::Relaxed);
        if bytes > BYTES {
            self.core.bytes.fetch_sub(payload.len(), Ordering::Relaxed);
            let limit = format!("this node keeps {bytes} bytes of messages to {}", self.core.name);
            finish.fail(NotRun::Overloaded(limit).into());
            return 0;
        }
        let is_nested = is_nested();
        let entity: Arc<str> = entity.into();
        self.change(|inner, after| {
            let (now, id) = (now(), self.core.here.number());
            let ticket = Ticket::default();
            inner
                .sending
                .insert(id, Sending { entity, payload, is_nested, deadline, ticket, finish });
            let mut effects = Vec::new();
            inner.route.send(Outgoing { id, kind, is_nested, deadline }, now, &mut effects);
            self.carry_out(inner, effects, now, after);
            id
        })
    }

    /// Cancels a routed message whose caller no longer waits. If it was not sent, it never will be.
    pub(crate) fn cancel(&self, number: u64) {
        self.change(|inner, _| {
            inner.route.cancel(number);
            if let Some(sending) = inner.sending.remove(&number) {
                sending.ticket.take_back();
                self.core.bytes.fetch_sub(sending.payload.len(), Ordering::Relaxed);
            }
        });
    }

    /// Applies the grant of a view.
    pub(super) fn see_grant(
        &self,
        inner: &mut Inner<C>,
        grant: Grant,
        now: Instant,
        after: &mut After<C>,
    ) {
        let mut effects = Vec::new();
        inner.route.see(grant, now, &mut effects);
        self.carry_out(inner, effects, now, after);
    }

    /// Refuses new messages, because this node is about to leave.
    pub(crate) fn refuse_new(&self) {
        self.change(|inner, _| inner.route.refuse_new());
    }

    /// Stops sending.
    pub(crate) fn close_route(&self) {
        self.change(|inner, after| {
            let mut effects = Vec::new();
            inner.route.close(&mut effects);
            self.carry_out(inner, effects, now(), after);
        });
    }

    /// Ends every message without an outcome: no further event or timer will end it.
    pub(crate) fn abandon(&self) {
        self.change(|inner, after| {
            let mut effects = Vec::new();
            let Inner { route, sending, .. } = &mut *inner;
            route.abandon(ENDED, |id| take_back(sending, id), &mut effects);
            self.carry_out(inner, effects, now(), after);
            inner.deadlines.abandon(&Unknown::Ended(ENDED.to_owned()), after);
        });
    }

    /// Processes an event of a message that was sent.
    pub(super) fn happened(&self, number: u64, event: Event) {
        self.change(|inner, after| {
            let (now, mut effects) = (now(), Vec::new());
            inner.route.on(number, event, now, &mut effects);
            self.carry_out(inner, effects, now, after);
        });
    }

    /// Carries out the actions of the route.
    pub(super) fn carry_out(
        &self,
        inner: &mut Inner<C>,
        effects: Vec<Effect>,
        now: Instant,
        after: &mut After<C>,
    ) {
        let mut effects = VecDeque::from(effects);
        // Once a message has returned, a later one must not overtake it.
        let mut has_returned = false;
        while let Some(effect) = effects.pop_front() {
            let (id, event) = match effect {
                Effect::Finish { id, outcome } => {
                    if let Some(sending) = inner.sending.remove(&id) {
                        self.core.bytes.fetch_sub(sending.payload.len(), Ordering::Relaxed);
                        after.finish.push((sending.finish, outcome));
                    }
                    continue;
                }
                Effect::Send { to, epoch, id } => {
                    (id, self.transmit(inner, &to, epoch, id, has_returned, after))
                }
            };
            if let Some(event) = event {
                has_returned |= matches!(event, Event::Returned(_));
                let mut more = Vec::new();
                inner.route.on(id, event, now, &mut more);
                effects.extend(more);
            }
        }
    }

    /// Sends a message. Returns its outcome, if that is known at once.
    fn transmit(
        &self,
        inner: &mut Inner<C>,
        to: &Peer,
        epoch: Revision,
        id: u64,
        has_returned: bool,
        after: &mut After<C>,
    ) -> Option<Event> {
        let here = &self.core.here;
        let Some(sending) = inner.sending.get_mut(&id) else {
            return Some(Event::Returned("it was taken back".to_owned()));
        };
        // Each attempt has its own.
        sending.ticket = Ticket::default();
        let envelope = Envelope {
            shard: self.id(),
            epoch,
            entity: Arc::clone(&sending.entity),
            id: here.message_id(id),
            is_ask: !matches!(sending.finish, Finish::Tell(_)),
            is_nested: sending.is_nested,
            is_request: matches!(sending.finish, Finish::Request(_)),
            deadline: sending.deadline,
            payload: sending.payload.clone(),
            ticket: sending.ticket.clone(),
        };
        if to.id == here.id {
            envelope.ticket.send();
            return self.arrive(
                inner,
                Arrived { envelope, command: None, from: From::Here },
                now(),
                after,
            );
        }
        if has_returned {
            return Some(Event::Returned("a message before it was not sent".to_owned()));
        }
        let Some(transport) = here.transport.get() else {
            return Some(Event::Returned(NO_LINKS.to_owned()));
        };
        let Some(address) = here.address(to) else {
            return Some(Event::Returned(format!("{} has no address in the table", to.id)));
        };
        let this = self.this.clone();
        let on_event: OnEvent = Box::new(move |event| {
            if let Some(this) = this.upgrade() {
                this.happened(id, event);
            }
        });
        match transport.send(to, &address, envelope, on_event) {
            Ok(()) => None,
            Err(Full(envelope)) => {
                let shard = envelope.shard;
                let why = format!("the link to the owner of {shard} accepts nothing more now");
                Some(Event::Returned(why))
            }
        }
    }
}

/// Takes a message back from the transport. Returns false if it was sent.
pub(super) fn take_back<C: Command>(sending: &HashMap<u64, Sending<C>>, id: u64) -> bool {
    sending.get(&id).is_some_and(|sending| sending.ticket.take_back())
}
