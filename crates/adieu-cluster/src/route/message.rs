//! One message of a sender: its state, and how it can end.

use bytes::Bytes;

use crate::store::Revision;
use crate::time::Instant;
use crate::transport::{Peer, Refusal};

/// A message that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    /// Rises with each message of this node to the shard: it is the message's place.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Whether a handler sends it while it handles another message.
    pub(crate) is_nested: bool,
    pub(crate) deadline: Instant,
}

/// The event that completes a message for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The owner's admission.
    Tell,
    /// A reply.
    Ask,
    /// A reply. The message may run more than once, so it is repeated if its fate is unknown.
    IdempotentAsk,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a message is not sent until the effect is carried out"]
pub(crate) enum Effect {
    /// Send the message to this node, under this epoch. If the node is not in the table yet, or the
    /// queue is full, that counts as [`crate::transport::Event::Returned`].
    Send { to: Peer, epoch: Revision, id: u64 },
    /// Report this outcome. The route no longer tracks the message.
    Finish { id: u64, outcome: Outcome },
}

/// How a message ended. There is exactly one outcome for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The ask ran once. Its encoded reply.
    Replied(Bytes),
    /// The owner has admitted the tell.
    Admitted,
    /// No handler has seen the message.
    NotRun(NotRun),
    /// It may have run, at most once unless it is idempotent.
    Unknown(Unknown),
}

/// Why a message did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// The deadline passed while this node kept the message.
    Expired(Waited),
    /// Too many messages are kept for the shard.
    TooManyKept { limit: usize },
    /// The owner refused it for good.
    Refused(Refusal),
    /// This node sends nothing more.
    Closed,
}

/// Why a message was kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Waited {
    /// No node owned the shard.
    NoOwner,
    /// The shard moved.
    Moving,
    /// The owner could not be reached.
    Unreachable(String),
}

/// Why it is not known whether a message ran.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unknown {
    /// The deadline passed after the message was sent.
    Expired,
    /// The link to the owner broke.
    Lost(String),
    /// The owner has ended the handler, or the handler has not replied.
    NotReplied(String),
}

/// A message that has no outcome yet, or that the owner has not decided about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) is_nested: bool,
    pub(super) deadline: Instant,
    pub(super) state: State,
    /// Why an earlier attempt may have run.
    pub(super) attempted: Option<Unknown>,
    pub(super) attempts: u32,
}

/// The state of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// It waits here.
    Kept(Waited),
    /// It waits here for its next attempt, and holds no other message back.
    Rests { until: Instant },
    /// It was sent. The owner has neither admitted nor refused it.
    Outstanding,
    /// As before, and it already has its outcome, because its deadline passed.
    Abandoned,
    /// The owner has admitted it, and will reply.
    Admitted,
}
