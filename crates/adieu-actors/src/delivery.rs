//! A message that was received, until it has been processed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A message that a [task](crate::task) or a [worker](crate::Worker) has received. Dereferences to the
/// message.
///
/// The message counts as processed when [`process`](Self::process) has returned or
/// [`done`](Self::done) was called. If the delivery is dropped before, because its receiver was killed,
/// panicked or returned, the message is a dead letter. So a receiver can process several messages at
/// once:
///
/// ```
/// use adieu_actors::{ActorSystem, Timeouts, task::{Inbox, task}};
/// use futures_util::stream::{FuturesUnordered, StreamExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let system = ActorSystem::new("shop");
/// let mail = system.spawn("mail", task(64, async |mut inbox: Inbox<String>| {
///     let mut running = FuturesUnordered::new();
///     loop {
///         tokio::select! {
///             Some(()) = running.next() => {}
///             received = inbox.recv() => match received {
///                 Some(letter) => running.push(letter.process(async |letter| {
///                     println!("sending {letter}");
///                 })),
///                 None => break,
///             },
///         }
///     }
///     while running.next().await.is_some() {}
/// })).await?;
/// mail.send("hello".to_owned()).await?;
/// let report = system.shutdown(Timeouts::STATELESS).await?;
/// assert!(report.is_clean(), "{report}");
/// assert_eq!(report.drained(), 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a delivery that is dropped before it is done is a dead letter"]
pub struct Delivery<M> {
    message: M,
    receipt: Receipt,
}

/// Notifies the receiver when it is dropped.
struct Receipt {
    receiver: Arc<dyn Receiver>,
    is_done: bool,
}

/// The receiver of deliveries. It counts how each of them ended.
pub(crate) trait Receiver: Send + Sync {
    /// Notes that a delivery has ended. If it is not done, its message is a dead letter.
    fn delivery_ended(&self, is_done: bool);
}

/// Counts the deliveries that have not ended. After [`close`](Self::close), nothing changes the count.
#[derive(Debug, Default)]
pub(crate) struct Outstanding(AtomicU64);

// === impl Delivery ===

impl<M> Delivery<M> {
    /// Creates a delivery, which the receiver has counted as outstanding.
    pub(crate) fn new(message: M, receiver: Arc<dyn Receiver>) -> Self {
        Self { message, receipt: Receipt { receiver, is_done: false } }
    }

    /// Processes the message. It counts as processed when the future of `work` has returned.
    pub async fn process<F: Future>(self, work: impl FnOnce(M) -> F) -> F::Output {
        let Self { message, mut receipt } = self;
        let output = work(message).await;
        receipt.is_done = true;
        output
    }

    /// Counts the message as processed, and returns it.
    pub fn done(self) -> M {
        let Self { message, mut receipt } = self;
        receipt.is_done = true;
        message
    }
}

impl<M> Deref for Delivery<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M> DerefMut for Delivery<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.message
    }
}

impl<M: fmt::Debug> fmt::Debug for Delivery<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.message).finish()
    }
}

// === impl Receipt ===

impl Drop for Receipt {
    fn drop(&mut self) {
        self.receiver.delivery_ended(self.is_done);
    }
}

// === impl Outstanding ===

impl Outstanding {
    const CLOSED: u64 = 1 << 63;

    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Subtracts a delivery that has ended. Returns false if [`Self::close`] has counted it already.
    pub(crate) fn end(&self) -> bool {
        let minus_one = |count: u64| (count & Self::CLOSED == 0).then(|| count - 1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, minus_one).is_ok()
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst) & !Self::CLOSED
    }

    /// Returns how many deliveries have not ended, and ignores their ends from now on.
    pub(crate) fn close(&self) -> u64 {
        self.0.swap(Self::CLOSED, Ordering::SeqCst) & !Self::CLOSED
    }
}
