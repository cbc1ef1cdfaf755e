//! An ask: a message, the wait for its reply, and its repeats.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::task::coop::poll_proceed;
use tokio::time::Sleep;

use super::WITHIN;
use super::hosted::RegionInner;
use crate::entity::{Path, Sent, Shard};
use crate::message::{AskError, Command, Unknown};
use crate::route::{Failed, Kind, Next, Repeats};
use crate::time::{Duration, Instant, LONGEST, now};

/// A command that waits to be sent. Created by [`At::ask`](super::At::ask).
#[must_use = "an ask is sent when it is awaited"]
pub struct Ask<'a, C: Command> {
    region: &'a RegionInner<C>,
    shard: &'a Shard<C>,
    key: Cow<'a, str>,
    command: C,
    within: Duration,
    copy: Option<fn(&C) -> C>,
}

pin_project! {
    /// An ask that is awaited.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, a message that this node still keeps is not sent. One that was sent may be
    /// handled.
    #[must_use = "futures do nothing unless polled"]
    pub struct Asking<'a, C: Command> {
        region: &'a RegionInner<C>,
        shard: &'a Shard<C>,
        key: Cow<'a, str>,
        // Taken when it is sent for the last time.
        command: Option<C>,
        copy: Option<fn(&C) -> C>,
        // When it was created, if the first poll follows at once.
        now: Option<Instant>,
        deadline: Instant,
        sent: Option<Sent<C::Reply>>,
        repeats: Repeats<Unknown>,
        is_resting: bool,
        #[pin]
        sleep: Option<Sleep>,
    }

    impl<C: Command> PinnedDrop for Asking<'_, C> {
        fn drop(this: Pin<&mut Self>) {
            if let Some(Sent { path: Path::Routed(number), .. }) = &this.sent {
                this.shard.cancel(*number);
            }
        }
    }
}

// === impl Ask ===

impl<'a, C: Command> Ask<'a, C> {
    pub(super) fn new(
        region: &'a RegionInner<C>,
        shard: &'a Shard<C>,
        key: Cow<'a, str>,
        command: C,
    ) -> Self {
        Self { region, shard, key, command, within: WITHIN, copy: None }
    }

    /// Sets how long the ask may take, from when it is awaited. Default: 5 seconds.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Allows that the command is handled more than once: it is repeated until its deadline while its
    /// outcome is unknown.
    pub fn idempotent(mut self) -> Self
    where
        C: Clone,
    {
        self.copy = Some(C::clone);
        self
    }
}

impl<'a, C: Command> IntoFuture for Ask<'a, C> {
    type Output = Result<C::Reply, AskError>;
    type IntoFuture = Asking<'a, C>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { region, shard, key, command, within, copy } = self;
        let now = now();
        Asking {
            region,
            shard,
            key,
            command: Some(command),
            copy,
            now: Some(now),
            deadline: now + within.min(LONGEST),
            sent: None,
            repeats: Repeats::default(),
            is_resting: false,
            sleep: None,
        }
    }
}

// === impl Asking ===

impl<C: Command> Future for Asking<'_, C> {
    type Output = Result<C::Reply, AskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if *this.is_resting {
                let sleep = this.sleep.as_mut().as_pin_mut();
                if let Some(sleep) = sleep {
                    ready!(sleep.poll(cx));
                }
                *this.is_resting = false;
                this.sleep.set(None);
            }
            let sent = match this.sent {
                Some(sent) => sent,
                None => {
                    // An ask that is refused at its first poll would otherwise never yield in a loop.
                    let Poll::Ready(budget) = poll_proceed(cx) else {
                        *this.now = None;
                        return Poll::Pending;
                    };
                    budget.made_progress();
                    let (command, kind) = match (&*this.copy, &*this.command) {
                        (Some(copy), Some(command)) => (Some(copy(command)), Kind::IdempotentAsk),
                        _ => (this.command.take(), Kind::Ask),
                    };
                    // A future that is polled after its end stays pending.
                    let Some(command) = command else { return Poll::Pending };
                    let now = this.now.take().unwrap_or_else(now);
                    let sent = this.shard.ask(this.key, command, kind, now, *this.deadline);
                    this.sent.insert(sent)
                }
            };
            let outcome = ready!(Pin::new(&mut sent.reply).poll(cx));
            let is_direct = matches!(sent.path, Path::Direct);
            *this.sent = None;
            let failed = match outcome {
                Ok(reply) => Ok(reply),
                Err(AskError::NotRun(why)) => Err(Failed::NotRun(why)),
                Err(AskError::Unknown(why)) => Err(Failed::Unknown(why)),
            };
            let outcome = match failed {
                Ok(reply) => Ok(reply),
                Err(failed) => {
                    // A message that was sent through the route has been repeated there.
                    let may_repeat = is_direct && this.copy.is_some();
                    match this.repeats.after(failed, may_repeat, now(), *this.deadline) {
                        Next::Repeat(pause) => {
                            *this.is_resting = true;
                            this.sleep.set(Some(tokio::time::sleep(pause)));
                            continue;
                        }
                        Next::NotRun(why) => Err(why.into()),
                        Next::Unknown(why) => Err(why.into()),
                    }
                }
            };
            *this.command = None;
            this.region.core.tally.ask(&outcome);
            return Poll::Ready(outcome);
        }
    }
}

impl<C: Command> fmt::Debug for Ask<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("key", &self.key)
            .field("within", &self.within)
            .field("is_idempotent", &self.copy.is_some())
            .finish_non_exhaustive()
    }
}

impl<C: Command> fmt::Debug for Asking<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("key", &self.key).finish_non_exhaustive()
    }
}
