//! A tell: a message, and the wait until its owner has accepted it.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio::task::coop::poll_proceed;

use super::WITHIN;
use crate::entity::{SentTell, Shard};
use crate::message::{AskError, Command, Unknown};
use crate::time::{Duration, Instant, deadline};

/// A command that waits to be sent. Created by [`At::tell`](super::At::tell).
#[must_use = "a tell is sent when it is awaited"]
pub struct Tell<'a, C: Command> {
    shard: &'a Shard<C>,
    key: Cow<'a, str>,
    command: C,
    within: Duration,
}

/// A tell that is awaited. It ends when the node that owns the entity has accepted the message. After
/// that, the message is lost only if that node dies or must kill the entity.
///
/// # Cancel safety
///
/// If it is dropped, a message that this node still keeps is not sent.
#[must_use = "futures do nothing unless polled"]
pub struct Telling<'a, C: Command> {
    shard: &'a Shard<C>,
    key: Cow<'a, str>,
    command: Option<C>,
    deadline: Instant,
    waits: Option<(oneshot::Receiver<Result<(), AskError>>, u64)>,
}

// === impl Tell ===

impl<'a, C: Command> Tell<'a, C> {
    pub(super) fn new(shard: &'a Shard<C>, key: Cow<'a, str>, command: C) -> Self {
        Self { shard, key, command, within: WITHIN }
    }

    /// Sets how long the owner may take to accept it, from when the tell is awaited. Default: 5
    /// seconds.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }
}

impl<'a, C: Command> IntoFuture for Tell<'a, C> {
    type Output = Result<(), AskError>;
    type IntoFuture = Telling<'a, C>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { shard, key, command, within } = self;
        Telling { shard, key, command: Some(command), deadline: deadline(within), waits: None }
    }
}

// === impl Telling ===

// Nothing in it is pinned.
impl<C: Command> Unpin for Telling<'_, C> {}

impl<C: Command> Future for Telling<'_, C> {
    type Output = Result<(), AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.command.is_some() {
            // A tell that ends at its first poll would otherwise never yield in a loop.
            ready!(poll_proceed(cx)).made_progress();
        }
        if let Some(command) = this.command.take() {
            match this.shard.tell(&this.key, command, this.deadline) {
                Ok(SentTell::Admitted) => return Poll::Ready(Ok(())),
                Ok(SentTell::Waits(admitted, number)) => this.waits = Some((admitted, number)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        // A future that is polled after its end stays pending.
        let Some((admitted, _)) = &mut this.waits else { return Poll::Pending };
        let outcome = ready!(Pin::new(admitted).poll(cx));
        this.waits = None;
        Poll::Ready(outcome.unwrap_or_else(|_| Err(Unknown::NoReply.into())))
    }
}

impl<C: Command> Drop for Telling<'_, C> {
    fn drop(&mut self) {
        if let Some((_, number)) = &self.waits {
            self.shard.cancel(*number);
        }
    }
}

impl<C: Command> fmt::Debug for Tell<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tell")
            .field("key", &self.key)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

impl<C: Command> fmt::Debug for Telling<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("key", &self.key).finish_non_exhaustive()
    }
}
