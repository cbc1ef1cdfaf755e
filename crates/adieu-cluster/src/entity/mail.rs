//! A message that an entity has opened.

use std::fmt;

use super::letter::{Letter, ReplyTo};
use super::nested::why_dropped;
use crate::message::{Command, MailId, Unknown};
use crate::time::{Duration, Instant, now};

/// A message that an entity has opened. If it is dropped without a reply, its ask ends with
/// [`AskError::Unknown`](crate::AskError::Unknown).
pub struct Mail<C: Command> {
    command: C,
    replier: Replier<C::Reply>,
    id: MailId,
    deadline: Instant,
}

/// Replies to one ask. Dropping it without a reply ends the ask with
/// [`AskError::Unknown`](crate::AskError::Unknown).
pub struct Replier<R: serde::Serialize> {
    to: ReplyTo<R>,
    /// Dropped when the mail was replied to or dropped.
    #[cfg(feature = "actors")]
    handled: Option<tokio::sync::oneshot::Sender<std::convert::Infallible>>,
    /// Returns why the actor that has the mail was stopped.
    #[cfg(feature = "actors")]
    stopped: Option<WhyStopped>,
}

/// Returns why an actor was stopped; `None` if it was not.
#[cfg(feature = "actors")]
pub(crate) type WhyStopped = std::sync::Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

// === impl Mail ===

impl<C: Command> Mail<C> {
    /// Opens a letter. Fails with the way back of its outcome and the error if its command cannot be
    /// decoded.
    pub(super) fn open(letter: Letter<C>) -> Result<Self, (ReplyTo<C::Reply>, String)> {
        let Letter { content, id, deadline, to } = letter;
        let command = match content.decoded() {
            Ok(command) => command,
            Err(error) => return Err((to, error)),
        };
        let replier = Replier {
            to,
            #[cfg(feature = "actors")]
            handled: None,
            #[cfg(feature = "actors")]
            stopped: None,
        };
        Ok(Self { command, replier, id: MailId::new(id), deadline })
    }

    /// Returns a receiver that fails when the mail was replied to or dropped.
    #[cfg(feature = "actors")]
    pub(crate) fn handled(&mut self) -> tokio::sync::oneshot::Receiver<std::convert::Infallible> {
        let (handled, waits) = tokio::sync::oneshot::channel();
        self.replier.handled = Some(handled);
        waits
    }

    /// Sets what returns why the actor that gets the mail was stopped, for a mail that it drops.
    #[cfg(feature = "actors")]
    pub(crate) fn is_for_actor(&mut self, stopped: WhyStopped) {
        self.replier.stopped = Some(stopped);
    }

    /// Returns the command.
    #[must_use]
    pub fn command(&self) -> &C {
        &self.command
    }

    /// Replies. The reply to a tell is discarded.
    pub fn reply(self, reply: C::Reply) {
        self.replier.reply(reply);
    }

    /// Returns the command and the handle that replies to it.
    #[must_use]
    pub fn into_parts(self) -> (C, Replier<C::Reply>) {
        (self.command, self.replier)
    }

    /// Returns the id of the message, which no other message of the cluster has.
    #[must_use]
    pub fn id(&self) -> MailId {
        self.id
    }

    /// Returns whether the sender waits for a reply.
    #[must_use]
    pub fn is_ask(&self) -> bool {
        self.replier.is_ask()
    }

    /// Returns how long the sender will still wait.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(now())
    }
}

impl<C: Command> fmt::Debug for Mail<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail")
            .field("id", &self.id)
            .field("is_ask", &self.is_ask())
            .finish_non_exhaustive()
    }
}

// === impl Replier ===

impl<R: serde::Serialize> Replier<R> {
    /// Replies. The reply to a tell is discarded.
    pub fn reply(mut self, reply: R) {
        self.take().done(reply);
    }

    fn is_ask(&self) -> bool {
        self.to.is_ask()
    }

    fn take(&mut self) -> ReplyTo<R> {
        std::mem::replace(&mut self.to, ReplyTo::NoReceiver)
    }
}

impl<R: serde::Serialize> Drop for Replier<R> {
    fn drop(&mut self) {
        if self.is_ask() {
            let why = why_dropped();
            #[cfg(feature = "actors")]
            let why = why.or_else(|| self.stopped.as_ref()?());
            let why = why.map(|why| Unknown::Ended(why.to_owned()));
            self.take().unknown(why.unwrap_or(Unknown::NoReply));
        }
    }
}

impl<R: serde::Serialize> fmt::Debug for Replier<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("is_ask", &self.is_ask()).finish_non_exhaustive()
    }
}
