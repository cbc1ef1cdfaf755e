//! A message on its way into a mailbox, and the receiver of its outcome.

use bytes::Bytes;
use serde::Serialize;

use super::reply::ReplySender;
use crate::message::{Command, NotRun, Unknown, decode, encode};
use crate::time::Instant;
use crate::transport::{Answer, MessageId, Refusal, Reply};

/// A message that no instance has opened.
pub(crate) struct Letter<C: Command> {
    pub(crate) content: Content<C>,
    pub(crate) id: MessageId,
    pub(crate) deadline: Instant,
    pub(crate) to: ReplyTo<C::Reply>,
}

/// The command of a letter.
pub(crate) enum Content<C> {
    Command(C),
    /// Of a message that this node has sent through its route. The task of the entity decodes it:
    /// decoding runs code of the application, and the shard is locked when the message arrives.
    Encoded(Bytes),
}

/// The receiver of the outcome of a message.
pub(crate) enum ReplyTo<R> {
    /// A tell has none.
    NoReceiver,
    /// To a task of this process.
    Here(ReplySender<R>),
    /// To another node, or to this one through its router.
    There(Box<dyn Answer>),
}

// === impl Content ===

impl<C: Command> Content<C> {
    /// Returns the command.
    pub(crate) fn decoded(self) -> Result<C, String> {
        match self {
            Self::Command(command) => Ok(command),
            Self::Encoded(bytes) => decode(&bytes),
        }
    }
}

// === impl ReplyTo ===

impl<R> ReplyTo<R> {
    pub(crate) fn is_ask(&self) -> bool {
        !matches!(self, Self::NoReceiver)
    }

    /// Ends an ask that no handler has seen.
    pub(crate) fn not_run(self, why: Refusal) {
        match self {
            Self::NoReceiver => {}
            Self::Here(to) => to.send(Err(NotRun::from(why).into())),
            Self::There(answer) => answer.reply(Reply::NotRun(why)),
        }
    }

    /// Ends an ask that a handler may have seen.
    pub(crate) fn unknown(self, why: Unknown) {
        match self {
            Self::NoReceiver => {}
            Self::Here(to) => to.send(Err(why.into())),
            Self::There(answer) => answer.reply(Reply::Unknown(why.to_string())),
        }
    }
}

impl<R: Serialize> ReplyTo<R> {
    /// Ends an ask with the reply of its entity.
    pub(crate) fn done(self, reply: R) {
        match self {
            Self::NoReceiver => {}
            Self::Here(to) => to.send(Ok(reply)),
            Self::There(answer) => answer.reply(match encode(&reply) {
                Ok(bytes) => Reply::Done(bytes),
                Err(error) => Reply::Unknown(format!("the reply cannot be encoded: {error}")),
            }),
        }
    }
}
