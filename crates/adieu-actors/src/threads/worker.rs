//! One worker thread, from its start until its actors have ended.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use adieu_core::TaskResult;
use adieu_core::adapter::lock;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::inbox::{Inboxes, SendError, WorkerDeliveries};
use super::report::{WorkerEnding, WorkerReport};
use crate::countdown::Countdown;
use crate::delivery::{Delivery, Receiver};
use crate::quiet::{Found, until_quiet};
use crate::record::mark_worker_thread;
use crate::report::DrainReport;
use crate::system::ActorSystem;
use crate::timeouts::Timeouts;

/// The argument of the body of a worker thread: its actor system, its inbox, and its connection to
/// the other workers.
pub struct Worker<M> {
    index: usize,
    system: ActorSystem,
    inboxes: Arc<Inboxes<M>>,
    /// Receives the inbox when the worker is dropped, even if the body panics.
    slot: Slot<M>,
    inbox: Option<mpsc::Receiver<M>>,
    /// Counts how its deliveries end.
    deliveries: Arc<dyn Receiver>,
}

/// Holds the inbox of a worker after its body has ended, so that its remaining messages are counted.
type Slot<M> = Arc<Mutex<Option<mpsc::Receiver<M>>>>;

impl<M> Worker<M> {
    /// Returns the index of the worker, from zero.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inboxes.count()
    }

    /// Returns the actor system of this thread.
    #[must_use]
    pub fn system(&self) -> &ActorSystem {
        &self.system
    }

    /// Sends a message to another worker, or to this one. Waits while its queue is full.
    ///
    /// # Errors
    ///
    /// If the drain has closed all queues, the worker has ended, or there is no worker with this index.
    /// The error contains the message. If the worker exists, the message is counted as a dead letter.
    pub async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.inboxes.send(to, message).await
    }

    /// Returns a handle to send messages to the workers, for actors of this one.
    #[must_use]
    pub fn peers(&self) -> Peers<M> {
        Peers { inboxes: Arc::clone(&self.inboxes) }
    }

    /// Returns a token that is cancelled when the drain begins.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        self.inboxes.draining().clone()
    }

    /// Returns the next message, or `None` when the body should return: the workers are being drained,
    /// and no worker and no actor of a worker has work.
    ///
    /// The message is a dead letter if its [`Delivery`] is dropped before it is done.
    ///
    /// During the drain, the other workers accept messages until this delivery is done and the actors of
    /// this worker have no work. So the body has to call `recv` again, or return.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<Delivery<M>> {
        let (inboxes, index) = (Arc::clone(&self.inboxes), self.index);
        let draining = inboxes.draining();
        if !draining.is_cancelled() {
            // One message stays pending until the drain has found the actors of this worker quiet.
            inboxes.release(index, inboxes.held(index).saturating_sub(1));
        }
        loop {
            let inbox = self.inbox.as_mut()?;
            let is_draining = draining.is_cancelled();
            let system = &self.system;
            // Deliveries that end while the actors are checked may have caused messages to them.
            let held = inboxes.held(index);
            let quiet = async {
                if is_draining && held > 0 {
                    until_all_quiet(system).await;
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                biased;
                message = inbox.recv() => return self.deliver(message),
                () = inboxes.closed() => {
                    inbox.close();
                    let message = inbox.recv().await;
                    return self.deliver(message);
                }
                () = quiet => inboxes.release(index, held),
                () = inboxes.delivered(index), if held == 0 => {}
                () = draining.cancelled(), if !is_draining => {}
            }
        }
    }

    fn deliver(&self, message: Option<M>) -> Option<Delivery<M>> {
        let message = message?;
        self.inboxes.begin_delivery(self.index);
        Some(Delivery::new(message, Arc::clone(&self.deliveries)))
    }
}

impl<M> Drop for Worker<M> {
    fn drop(&mut self) {
        // `live` releases the messages that the worker holds when it has found the actors quiet.
        *lock(&self.slot) = self.inbox.take();
    }
}

impl<M> fmt::Debug for Worker<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Sends messages to the workers, for their actors.
pub struct Peers<M> {
    inboxes: Arc<Inboxes<M>>,
}

impl<M> Peers<M> {
    /// Sends a message to a worker. Waits while its queue is full.
    ///
    /// # Errors
    ///
    /// As [`Worker::send`].
    pub async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.inboxes.send(to, message).await
    }
}

impl<M> Clone for Peers<M> {
    fn clone(&self) -> Self {
        Self { inboxes: Arc::clone(&self.inboxes) }
    }
}

impl<M> fmt::Debug for Peers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

/// Runs a worker on this thread, from its start until its actors have ended.
pub(super) fn run<M, F, R>(
    index: usize,
    inbox: mpsc::Receiver<M>,
    inboxes: &Arc<Inboxes<M>>,
    countdown: &Countdown,
    body: &F,
) -> WorkerReport
where
    M: Send + 'static,
    F: AsyncFn(Worker<M>) -> R,
    R: TaskResult,
{
    let slot: Slot<M> = Arc::new(Mutex::new(Some(inbox)));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            if let Some(inbox) = lock(&slot).take() {
                // Without a runtime, this thread cannot await the count.
                let _ = inboxes.count_unprocessed(index, inbox).now_or_never();
            }
            inboxes.release(index, 1);
            let ending = WorkerEnding::Failed {
                error: format!("failed to build a runtime: {error}").into(),
            };
            return WorkerReport::missing(index, ending, inboxes.dead_letters(index));
        }
    };
    // All code on this thread belongs to the worker.
    mark_worker_thread(inboxes.announced().clone());
    let (ending, actors) = runtime.block_on(live(index, &slot, inboxes, countdown, body));
    // Does not wait for blocking tasks.
    runtime.shutdown_background();
    WorkerReport { index, ending, actors, dead_letters: inboxes.dead_letters(index) }
}

/// Runs the body, and then drains the actors.
async fn live<M, F, R>(
    index: usize,
    slot: &Slot<M>,
    inboxes: &Arc<Inboxes<M>>,
    countdown: &Countdown,
    body: &F,
) -> (WorkerEnding, DrainReport)
where
    M: Send + 'static,
    F: AsyncFn(Worker<M>) -> R,
    R: TaskResult,
{
    let system = ActorSystem::of_worker(format!("{}-{index}", inboxes.name()), inboxes.end());
    inboxes.add_system(index, Arc::clone(&system.state));
    let worker = Worker {
        index,
        system: system.clone(),
        inboxes: Arc::clone(inboxes),
        slot: Arc::clone(slot),
        inbox: lock(slot).take(),
        deliveries: Arc::new(WorkerDeliveries { inboxes: Arc::clone(inboxes), index }),
    };
    let ending = {
        let body = AssertUnwindSafe(async { body(worker).await.into_result() }).catch_unwind();
        tokio::select! {
            biased;
            ended = body => match ended {
                Ok(Ok(())) => WorkerEnding::Drained,
                Ok(Err(error)) => WorkerEnding::Failed { error: error.to_string().into() },
                Err(_) => WorkerEnding::Panicked,
            },
            () = countdown.passed() => WorkerEnding::Cut,
        }
    };
    let inbox = lock(slot).take();
    if let Some(inbox) = inbox {
        tokio::select! {
            biased;
            () = inboxes.count_unprocessed(index, inbox) => {}
            () = inboxes.closed() => {}
        }
    }
    // The body may have moved deliveries into other tasks.
    tokio::select! {
        biased;
        () = inboxes.all_delivered(index) => {}
        () = countdown.passed() => {}
    }
    inboxes.interrupt_deliveries(index);
    // The actors run until the drain begins and no worker has work.
    inboxes.draining().cancelled().await;
    tokio::select! {
        () = until_all_quiet(&system) => {}
        () = inboxes.closed() => {}
    }
    inboxes.release(index, inboxes.held(index));
    inboxes.closed().await;
    let timeout = countdown.remaining().unwrap_or(Timeouts::WORKER_THREADS);
    if let Some(end) = countdown.most_of_grace() {
        system.state.countdown.shorten_grace(end); // The worker must report before the pool abandons it.
    }
    let actors = system.abort(timeout).await.map(|report| (*report).clone());
    (ending, actors.unwrap_or_else(|_| DrainReport::empty()))
}

/// Waits until the actors of a worker have no work.
async fn until_all_quiet(system: &ActorSystem) {
    until_quiet(|| system.state.nodes().into(), &mut Found::new()).await;
}
