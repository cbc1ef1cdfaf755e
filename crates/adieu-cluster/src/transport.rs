//! Carries one message from the node that sends it to the node that owns its shard, over any
//! medium.
//!
//! # What a transport promises
//!
//! 1. Envelopes of one peer arrive in the order in which they were sent.
//! 2. Every envelope that [`Transport::send`] accepts is followed by events that match
//!    `Admitted? (Replied | Refused | Returned | Lost)` for an ask, and by one of
//!    `Admitted | Refused | Returned | Lost` for a tell. `Refused` and `Returned` never follow
//!    `Admitted`.
//! 3. [`Event::Returned`] is reported only if the peer has not read the envelope, and never will.
//!    Otherwise a link that ends reports [`Event::Lost`].
//! 4. From when a link has ended until each event of its envelopes has been reported,
//!    [`Transport::send`] accepts no envelope for the same peer. Otherwise it would overtake those that
//!    are about to return to their sender.
//! 5. An envelope that its sender has taken back is never sent: a transport sends one only if
//!    [`Ticket::send`] succeeds, and otherwise reports [`Event::Returned`].
//! 6. Neither side blocks: a full queue is an error for the sender, and a receiver refuses.

mod ticket;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::records::{NodeId, ShardId};
use crate::store::Revision;
use crate::time::Instant;

pub(crate) use ticket::Ticket;

/// Why a node without a transport reaches no entities of other nodes.
pub(crate) const NO_LINKS: &str =
    "this node has no links to others: declare `listen` when you build it";

/// The future of a transport's answer.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One incarnation of another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    pub(crate) incarnation: Revision,
}

/// Identifies a message among all messages of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MessageId {
    /// The incarnation of the sending node.
    pub(crate) incarnation: Revision,
    pub(crate) sequence: u64,
}

/// One message to an entity.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) shard: ShardId,
    /// The epoch of the owner that the sender has seen. The owner admits the message only if the
    /// shard is open under exactly this epoch.
    pub(crate) epoch: Revision,
    pub(crate) entity: Arc<str>,
    pub(crate) id: MessageId,
    /// Whether the sender waits for a reply.
    pub(crate) is_ask: bool,
    /// Whether a handler sends it while it handles another message. Such a message is admitted by a
    /// shard that drains.
    pub(crate) is_nested: bool,
    /// Whether it is an HTTP request, which holds the shard while its handler runs, and is no mail.
    pub(crate) is_request: bool,
    /// It travels as the remaining time, because nodes do not share a clock.
    pub(crate) deadline: Instant,
    pub(crate) payload: Bytes,
    /// Whether it is sent or was taken back. Only the sending node uses it.
    pub(crate) ticket: Ticket,
}

/// An event of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The owner has accepted it.
    Admitted,
    /// The owner has not accepted it.
    Refused(Refusal),
    /// The reply to an ask that was admitted.
    Replied(Reply),
    /// The peer has not read it, and never will.
    Returned(String),
    /// The link broke after the peer may have read it.
    Lost(String),
}

/// How the handling of an admitted ask ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The entity handled it. Its encoded answer.
    Done(Bytes),
    /// No handler has seen it.
    NotRun(Refusal),
    /// A handler may have run, and did not reply.
    Unknown(String),
}

/// Why a node does not accept a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The shard is being handed over, or is owned elsewhere. If the node has seen a newer grant,
    /// its owner and epoch. The sender keeps the message until there is a newer grant.
    Moving { newer: Option<(Peer, Revision)> },
    /// The shard is being handed over, and little time remains. Only a nested message is refused
    /// with this. It is final, because the handler that waits for it delays the hand-off.
    Draining,
    /// The mailbox of the entity is full.
    Busy,
    /// The node has reached a limit, such as the number of entities.
    Overloaded(String),
    /// The deadline passed before a handler saw the message.
    Expired,
    /// The node cannot read the message.
    Unsupported(String),
}

/// A peer that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailingLink {
    pub(crate) peer: Peer,
    pub(crate) address: Arc<str>,
    /// The instant since which every attempt has failed.
    pub(crate) since: Instant,
    /// Why the last attempt failed.
    pub(crate) why: String,
}

/// The queue is full, or the events of a link that has ended are being reported: the envelope was not
/// sent.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) Box<Envelope>);

/// Receives the events of one envelope, in order. Called by the transport; must not block.
pub(crate) type OnEvent = Box<dyn FnMut(Event) + Send>;

/// Sends envelopes to other nodes.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Queues an envelope for a peer, and connects to it if necessary.
    fn send(
        &self,
        to: &Peer,
        address: &str,
        envelope: Envelope,
        on_event: OnEvent,
    ) -> Result<(), Full>;

    /// Asks a peer to prepare for a shard. `Err` if it declines or cannot be reached.
    #[cfg_attr(
        not(any(test, feature = "links")),
        expect(dead_code, reason = "owners hand over without asking first")
    )]
    fn prepare<'a>(
        &'a self,
        to: &'a Peer,
        address: &'a str,
        shard: &'a ShardId,
    ) -> Pending<'a, Result<(), String>>;

    /// Returns the peers that cannot be reached, although something is to be sent to them.
    fn failing(&self) -> Vec<FailingLink> {
        Vec::new()
    }

    /// Sends the answers that are queued, reports to every peer which envelopes were not read, and
    /// ends all links.
    fn close(&self) -> Pending<'_, ()>;
}

/// A transport that starts when this node is in the table.
pub(crate) trait Carrier: Transport {
    /// Starts to accept and send, as this incarnation of this node.
    fn start(&self, me: &Peer, runtime: &tokio::runtime::Handle, receiver: Arc<dyn Receiver>);

    /// Returns the same object as a transport.
    fn into_transport(self: Arc<Self>) -> Arc<dyn Transport>;
}

/// Accepts envelopes of other nodes. Called by the transport; must not block.
pub(crate) trait Receiver: Send + Sync + 'static {
    /// Returns whether this incarnation of a node is in the table, as far as this node has seen.
    /// Envelopes of other nodes are not read.
    fn knows(&self, peer: &Peer) -> bool;

    /// Decides about an envelope, now or later.
    fn receive(&self, from: &Peer, envelope: Envelope, answer: Box<dyn Answer>);

    /// Prepares for a shard, or declines.
    fn prepare<'a>(&'a self, from: &'a Peer, shard: &'a ShardId)
    -> Pending<'a, Result<(), String>>;
}

/// Answers one envelope. A transport that drops an answer without a decision counts it as refused
/// with [`Refusal::Moving`] before admission, and as [`Reply::Unknown`] after it.
pub(crate) trait Answer: Send + fmt::Debug {
    /// Reports that the envelope was admitted.
    fn admit(&mut self);

    /// Reports that it was not admitted.
    fn refuse(self: Box<Self>, refusal: Refusal);

    /// Reports how an admitted ask ended.
    fn reply(self: Box<Self>, reply: Reply);
}

#[cfg(test)]
pub(crate) mod conformance;
