//! Requests that run in a shard. They hold it as passes do, run only while this node may act, and are
//! dropped when the shard is killed.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;

use bytes::Bytes;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::status::Killed;
use crate::entity::nested::AsEntity;
use crate::entity::node::Here;
use crate::store::Revision;
use crate::time::{Duration, Instant, now, sleep_until};
use crate::transport::{Answer, Reply};

/// Runs encoded requests, and returns encoded responses.
pub(crate) trait Requests: Send + Sync {
    fn run(&self, request: Bytes, inside: &Inside) -> Pin<Box<dyn Future<Output = Bytes> + Send>>;
}

/// The handler of the region's requests on this node, if it routes them.
#[derive(Default)]
pub(crate) struct Handler(RwLock<Option<Arc<dyn Requests>>>);

/// The requests that run in one shard.
#[derive(Default)]
pub(super) struct Running {
    /// Their keys, and since when they run.
    requests: BTreeMap<u64, (Arc<str>, Instant)>,
    last: u64,
    /// Fires when they are to be dropped. Each epoch has its own.
    killed: CancellationToken,
}

/// A request inside a shard, which is not handed over before this was dropped.
pub(crate) struct Inside {
    pub(crate) key: Arc<str>,
    pub(crate) epoch: Revision,
    pub(crate) here: Arc<Here>,
    pub(crate) closing: CancellationToken,
    killed: CancellationToken,
    leave: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// The node lost its place, or the shard was killed. What ran under it was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// A request of another node that was admitted.
pub(super) struct Admitted {
    pub(super) inside: Inside,
    pub(super) handler: Arc<dyn Requests>,
    pub(super) request: Bytes,
    pub(super) deadline: Instant,
    pub(super) answer: Answering,
}

/// Answers a request, even if its task is dropped.
pub(super) struct Answering(pub(super) Option<Box<dyn Answer>>);

// === impl Stopped ===

impl Stopped {
    pub(crate) const TEXT: &str =
        "the handler was stopped, because its shard moves or its node may no longer act";
}

// === impl Handler ===

impl Handler {
    pub(crate) fn set(&self, handler: Arc<dyn Requests>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Requests>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn clear(&self) {
        let handler = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        // Not under the lock: this drops the application.
        drop(handler);
    }
}

// === impl Running ===

impl Running {
    /// Prepares for requests, because the shard opens under a new epoch.
    pub(super) fn open(&mut self) {
        self.killed = CancellationToken::new();
    }

    /// Adds a request. Returns its number, and a token that fires when it is to be dropped.
    pub(super) fn add(&mut self, key: Arc<str>, now: Instant) -> (u64, CancellationToken) {
        self.last += 1;
        self.requests.insert(self.last, (key, now));
        (self.last, self.killed.clone())
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.requests.remove(&number);
    }

    /// Names the requests, once. Returns a guard that drops them.
    pub(super) fn kill(&self, now: Instant, killed: &mut Vec<Killed>) -> Option<CancellationToken> {
        if self.killed.is_cancelled() || self.requests.is_empty() {
            return None;
        }
        killed.extend(self.requests.values().map(|(key, since)| Killed {
            id: name(key),
            busy: Some(now.saturating_duration_since(*since)),
            asks: 0,
            dead_letters: 0,
        }));
        Some(self.killed.clone())
    }

    /// Returns the request that has run for the longest time.
    pub(super) fn longest(&self, now: Instant) -> Option<(Arc<str>, Duration)> {
        let longest = self.requests.values().min_by_key(|(_, since)| *since);
        longest.map(|(key, since)| (name(key), now.saturating_duration_since(*since)))
    }
}

fn name(key: &str) -> Arc<str> {
    format!("request to {key}").into()
}

// === impl Inside ===

impl Inside {
    pub(super) fn new(
        key: Arc<str>,
        epoch: Revision,
        here: Arc<Here>,
        (closing, killed): (CancellationToken, CancellationToken),
        leave: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self { key, epoch, here, closing, killed, leave: Some(Box::new(leave)) }
    }

    /// Returns a token that fires when the request is to be dropped.
    pub(crate) fn killed(&self) -> WaitForCancellationFutureOwned {
        self.killed.clone().cancelled_owned()
    }

    /// Polls work of this request as the work of an entity: only while this node may act, and what it
    /// asks is admitted by shards that drain.
    pub(crate) fn guard<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<Result<T, Stopped>> {
        let now = now();
        if self.killed.is_cancelled() || !self.here.is_good_at(now) {
            return Poll::Ready(Err(Stopped));
        }
        let _here = AsEntity::enter(now);
        poll().map(Ok)
    }

    /// Runs work of this request to its end, or until it is to be dropped.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        let mut killed = pin!(self.killed.cancelled());
        let mut work = pin!(work);
        poll_fn(|cx| match killed.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Stopped)),
            Poll::Pending => self.guard(|| work.as_mut().poll(cx)),
        })
        .await
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave();
        }
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("key", &self.key).finish_non_exhaustive()
    }
}

// === impl Admitted ===

impl Admitted {
    /// Runs the request, and answers it.
    pub(super) async fn run(self) {
        let Self { inside, handler, request, deadline, answer } = self;
        let run = handler.run(request, &inside);
        let reply = tokio::select! {
            biased;
            ended = inside.run(run) => match ended {
                Ok(response) => Reply::Done(response),
                Err(Stopped) => Reply::Unknown(Stopped::TEXT.to_owned()),
            },
            // The node that waits for it has given up at the same time.
            () = sleep_until(deadline) => {
                Reply::Unknown("the handler was stopped at the deadline of the request".to_owned())
            }
        };
        // The answer is queued before the shard can be handed over.
        answer.reply(reply);
        drop(inside);
    }
}

// === impl Answering ===

impl Answering {
    fn reply(mut self, reply: Reply) {
        if let Some(answer) = self.0.take() {
            answer.reply(reply);
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.reply(Reply::Unknown("the handler panicked, or its node has ended".to_owned()));
        }
    }
}
