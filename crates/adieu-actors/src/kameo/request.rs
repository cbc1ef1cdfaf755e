//! Requests to send a tracked message, with the options of kameo's own requests.

use std::fmt;
use std::time::Duration;

use ::kameo::Actor;
use ::kameo::error::SendError;
use ::kameo::mailbox::Signal;
use ::kameo::message::Message;
use ::kameo::reply::{BoxReplySender, Reply};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::sync::oneshot;

use super::Ref;
use super::parcel::Parcel;

/// A request that sends a message when it is awaited. Returned by [`Ref::tell`].
#[must_use = "it is not sent until it is awaited, or until a method sends it"]
pub struct Tell<'a, A: Actor, M> {
    to: &'a Ref<A>,
    message: M,
    mailbox_timeout: Option<Duration>,
}

/// A request that sends a message and waits for the reply, when it is awaited. Returned by
/// [`Ref::ask`].
#[must_use = "it is not sent until it is awaited, or until a method sends it"]
pub struct Ask<'a, A: Actor, M> {
    tell: Tell<'a, A, M>,
    reply_timeout: Option<Duration>,
}

// === impl Tell ===

impl<'a, A, M> Tell<'a, A, M>
where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    pub(super) fn new(to: &'a Ref<A>, message: M) -> Self {
        Self { to, message, mailbox_timeout: None }
    }

    /// Limits how long the request waits while the mailbox is full.
    pub fn mailbox_timeout(mut self, timeout: Duration) -> Self {
        self.mailbox_timeout = Some(timeout);
        self
    }

    /// Sends the message. Waits while the mailbox is full.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, if it is being drained and the sender is not, or
    /// if the mailbox stays full for too long. The error contains the message.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it resolves, the message may have been sent.
    pub async fn send(self) -> Result<(), SendError<M>> {
        self.send_with(None).await
    }

    /// Sends the message if the mailbox is not full.
    ///
    /// # Errors
    ///
    /// As [`Tell::send`].
    pub fn try_send(self) -> Result<(), SendError<M>> {
        let Self { to, message, .. } = self;
        let (parcel, signal) =
            Parcel::new(to, message, None).map_err(SendError::ActorNotRunning)?;
        match to.actor.mailbox_sender().try_send(signal) {
            Ok(()) => parcel.accepted(&to.actor).map_err(SendError::ActorNotRunning),
            Err(TrySendError::Full(signal)) => {
                Err(returned(parcel.take_back(), signal, SendError::MailboxFull))
            }
            Err(TrySendError::Closed(signal)) => {
                Err(returned(parcel.take_back_refused(), signal, SendError::ActorNotRunning))
            }
        }
    }

    /// Sends the message from a thread that may block. Waits while the mailbox is full.
    ///
    /// # Errors
    ///
    /// As [`Tell::send`].
    pub fn blocking_send(self) -> Result<(), SendError<M>> {
        let Self { to, message, .. } = self;
        let (parcel, signal) =
            Parcel::new(to, message, None).map_err(SendError::ActorNotRunning)?;
        match to.actor.mailbox_sender().blocking_send(signal) {
            Ok(()) => parcel.accepted(&to.actor).map_err(SendError::ActorNotRunning),
            Err(error) => {
                Err(returned(parcel.take_back_refused(), error.0, SendError::ActorNotRunning))
            }
        }
    }

    async fn send_with(self, reply: Option<BoxReplySender>) -> Result<(), SendError<M>> {
        let Self { to, message, mailbox_timeout } = self;
        let (parcel, signal) = match Parcel::new(to, message, reply) {
            Ok(sent) => sent,
            Err(message) => {
                // A loop of refused messages would otherwise never yield.
                tokio::task::coop::consume_budget().await;
                return Err(SendError::ActorNotRunning(message));
            }
        };
        let mailbox = to.actor.mailbox_sender();
        let sent = match mailbox_timeout {
            Some(timeout) => mailbox.send_timeout(signal, timeout).await,
            None => mailbox.send(signal).await.map_err(|error| SendTimeoutError::Closed(error.0)),
        };
        match sent {
            Ok(()) => parcel.accepted(&to.actor).map_err(SendError::ActorNotRunning),
            Err(SendTimeoutError::Timeout(signal)) => {
                let timed_out = |message| SendError::Timeout(Some(message));
                Err(returned(parcel.take_back(), signal, timed_out))
            }
            Err(SendTimeoutError::Closed(signal)) => {
                Err(returned(parcel.take_back_refused(), signal, SendError::ActorNotRunning))
            }
        }
    }
}

/// Creates an error that contains a message that was taken back, and drops its signal.
fn returned<A: Actor, M>(
    message: Option<M>,
    signal: Signal<A>,
    error: impl FnOnce(M) -> SendError<M>,
) -> SendError<M> {
    drop(signal);
    message.map_or(SendError::ActorStopped, error)
}

impl<'a, A, M> IntoFuture for Tell<'a, A, M>
where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    type Output = Result<(), SendError<M>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<A: Actor, M> fmt::Debug for Tell<'_, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tell").field("to", self.to).finish_non_exhaustive()
    }
}

// === impl Ask ===

type Answer<A, M> = Result<
    <<A as Message<M>>::Reply as Reply>::Ok,
    SendError<M, <<A as Message<M>>::Reply as Reply>::Error>,
>;

impl<'a, A, M> Ask<'a, A, M>
where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    pub(super) fn new(to: &'a Ref<A>, message: M) -> Self {
        Self { tell: Tell::new(to, message), reply_timeout: None }
    }

    /// Limits how long the request waits while the mailbox is full.
    pub fn mailbox_timeout(mut self, timeout: Duration) -> Self {
        self.tell = self.tell.mailbox_timeout(timeout);
        self
    }

    /// Limits how long the request waits for the reply, from when the message has been sent.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.reply_timeout = Some(timeout);
        self
    }

    /// Sends the message, and waits for the reply.
    ///
    /// # Errors
    ///
    /// If the actor has stopped or is about to stop, if it is being drained and the sender is not, if
    /// it ends without replying, if a timeout elapses, or if its handler fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it resolves, the message may have been sent and handled.
    pub async fn send(self) -> Answer<A, M> {
        let Self { tell, reply_timeout } = self;
        let (reply, answer) = oneshot::channel();
        tell.send_with(Some(reply)).await.map_err(|error| error.map_err(|never| match never {}))?;
        let answer = match reply_timeout {
            Some(timeout) => tokio::time::timeout(timeout, answer).await??,
            None => answer.await?,
        };
        answer.map(|reply| A::Reply::downcast_ok(reply)).map_err(A::Reply::downcast_err)
    }
}

impl<'a, A, M> IntoFuture for Ask<'a, A, M>
where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    type Output = Answer<A, M>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<A: Actor, M> fmt::Debug for Ask<'_, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("to", self.tell.to).finish_non_exhaustive()
    }
}
