//! A message to an entity, and its possible outcomes.

use std::fmt;
use std::panic::catch_unwind;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::route::{self, Outcome, Waited};
use crate::singleton::panic_text;
use crate::transport::{MessageId, Refusal, Reply};

/// A message to an entity: the type of everything that a region's entities receive.
///
/// A command to an entity on the same node is passed on as it is. To another node it travels as JSON,
/// so that nodes of different builds understand each other as far as their types allow.
///
/// ```
/// use adieu_cluster::Command;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// enum Cart {
///     Add { item: String },
///     Checkout,
/// }
///
/// impl Command for Cart {
///     type Reply = Result<u32, String>;
/// }
/// ```
pub trait Command: Serialize + DeserializeOwned + Send + 'static {
    /// The reply of an entity to an ask.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

/// Why an ask has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No handler has seen the message: it can be repeated without doubt.
    #[error("the message was not handled: {0}")]
    NotRun(NotRun),
    /// A handler may have seen the message, once. Repeat it only if the command is idempotent, or if
    /// the entity recognises repeats.
    #[error(
        "the message may have been handled: {0}; repeat it only if handling it twice does no harm"
    )]
    Unknown(Unknown),
}

/// Why no handler has seen a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRun {
    /// The shard was handed over, or its node has lost its place, before the entity opened the
    /// message.
    #[error("its shard is moving to another node; repeat it")]
    Moving,
    /// The mailbox of the entity is full.
    #[error("the mailbox of the entity is full; send more slowly, or repeat it later")]
    Busy,
    /// A node has reached a limit, which the text names.
    #[error("{0}; send more slowly, or repeat it later")]
    Overloaded(String),
    /// The deadline passed first.
    #[error("its deadline passed first; allow more time with `within`")]
    Expired,
    /// A node cannot read the message.
    #[error("{0}; deploy a build that understands the command everywhere")]
    Unsupported(String),
    /// The node that owns the shard could not be reached before the deadline.
    #[error("{0}; check the network between the nodes, and repeat it")]
    Unreachable(String),
    /// This node is not a member of the cluster, because it has not joined, has left, or has lost its
    /// place.
    #[error("this node is not a member of the cluster; send it from a node that is")]
    Outside,
}

/// Why it is not known whether a handler has handled a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The entity dropped the mail without a reply.
    #[error("the entity did not reply")]
    NoReply,
    /// The entity ended while it handled the message. The text is the reason.
    #[error("{0}")]
    Ended(String),
    /// The deadline passed after the message was sent or opened.
    #[error("its deadline passed before the reply")]
    Expired,
    /// The connection to the other node broke. The text names the cause.
    #[error("{0}")]
    Disconnected(String),
}

/// Identifies a message among all messages of a cluster, so that an entity can recognise a repeat
/// that its sender has sent under the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailId(MessageId);

// === impl AskError ===

impl AskError {
    /// Returns whether no handler has seen the message.
    #[must_use]
    pub fn is_not_run(&self) -> bool {
        matches!(self, Self::NotRun(_))
    }
}

impl From<NotRun> for AskError {
    fn from(why: NotRun) -> Self {
        Self::NotRun(why)
    }
}

impl From<Unknown> for AskError {
    fn from(why: Unknown) -> Self {
        Self::Unknown(why)
    }
}

// === impl NotRun ===

impl From<Refusal> for NotRun {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Moving { .. } | Refusal::Draining => Self::Moving,
            Refusal::Busy => Self::Busy,
            Refusal::Overloaded(limit) => Self::Overloaded(limit),
            Refusal::Expired => Self::Expired,
            Refusal::Unsupported(problem) => Self::Unsupported(problem),
        }
    }
}

impl From<route::NotRun> for NotRun {
    fn from(why: route::NotRun) -> Self {
        match why {
            route::NotRun::Expired(Waited::NoOwner) => {
                Self::Unreachable("no node that hosts its region was up".to_owned())
            }
            route::NotRun::Expired(Waited::Moving) => Self::Expired,
            route::NotRun::Expired(Waited::Unreachable(why)) => Self::Unreachable(why),
            route::NotRun::TooManyKept { limit } => {
                Self::Overloaded(format!("this node keeps {limit} messages to its shard"))
            }
            route::NotRun::Refused(refusal) => refusal.into(),
            route::NotRun::Closed => Self::Outside,
        }
    }
}

// === impl Unknown ===

impl From<route::Unknown> for Unknown {
    fn from(why: route::Unknown) -> Self {
        match why {
            route::Unknown::Expired => Self::Expired,
            route::Unknown::Lost(why) => Self::Disconnected(why),
            route::Unknown::NotReplied(why) => Self::of(why),
        }
    }
}

impl Unknown {
    /// Returns what a text that travelled from another node means.
    fn of(text: String) -> Self {
        match text == Self::NoReply.to_string() {
            true => Self::NoReply,
            false => Self::Ended(text),
        }
    }
}

// === impl MailId ===

impl MailId {
    pub(crate) fn new(id: MessageId) -> Self {
        Self(id)
    }
}

impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.incarnation.get(), self.0.sequence)
    }
}

/// Encodes a command or a reply.
pub(crate) fn encode(value: &impl Serialize) -> Result<bytes::Bytes, String> {
    serde_json::to_vec(value).map(Into::into).map_err(|error| error.to_string())
}

/// Decodes a command or a reply. This runs code of the application: a panic is returned as an error,
/// because it must not end the task of a link.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let decoded = catch_unwind(|| serde_json::from_slice(bytes).map_err(|error| error.to_string()));
    decoded.unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

/// Returns the outcome that a reply from another node means.
pub(crate) fn outcome<R: DeserializeOwned>(reply: Reply) -> Result<R, AskError> {
    match reply {
        Reply::Done(bytes) => decode(&bytes).map_err(|error| {
            Unknown::Ended(format!("the reply cannot be decoded: {error}")).into()
        }),
        Reply::NotRun(refusal) => Err(NotRun::from(refusal).into()),
        Reply::Unknown(text) => Err(Unknown::of(text).into()),
    }
}

/// Returns how a message that this node has routed ended: the encoded reply, or that a tell was
/// admitted.
pub(crate) fn finished(outcome: Outcome) -> Result<Option<bytes::Bytes>, AskError> {
    match outcome {
        Outcome::Replied(reply) => Ok(Some(reply)),
        Outcome::Admitted => Ok(None),
        Outcome::NotRun(why) => Err(NotRun::from(why).into()),
        Outcome::Unknown(why) => Err(Unknown::from(why).into()),
    }
}

/// Returns the shard of a key. All nodes of all builds must agree on it, so it never changes.
pub(crate) fn shard_of(key: &str, shards: u32) -> u32 {
    // FNV-1a, and a finalizer that spreads what differs only at the end over all bits.
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^= hash >> 32;
    // The product of the upper half with the number of shards spreads evenly, without a division.
    (((hash >> 32) * u64::from(shards)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1150_the_shard_of_a_key_never_changes_and_keys_spread_evenly() {
        let shards: Vec<u32> = ["cart-1", "cart-2", "", "größe"].map(|it| shard_of(it, 256)).into();
        assert_eq!(shards, [54, 7, 253, 111]);
        let mut counts = [0_u32; 64];
        for at in 0..64_000 {
            counts[shard_of(&format!("cart-{at}"), 64) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn errors_contain_advice() {
        let moving = AskError::from(NotRun::Moving).to_string();
        assert_eq!(
            moving,
            "the message was not handled: its shard is moving to another node; repeat it"
        );
        let unknown = AskError::from(Unknown::NoReply).to_string();
        assert!(unknown.contains("did not reply; repeat it only if"), "{unknown}");
    }

    #[test]
    fn a_reply_without_an_answer_is_recognised_after_it_travelled() {
        let text = Unknown::NoReply.to_string();
        let travelled = outcome::<()>(Reply::Unknown(text)).unwrap_err();
        assert_eq!(travelled, Unknown::NoReply.into());
    }
}
