//! One worker thread, from its start until its actors have ended.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adieu_core::TaskResult;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::inbox::{Inboxes, SendError};
use super::report::{WorkerEnding, WorkerReport};
use crate::countdown::Countdown;
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
    /// Gets the inbox when this is dropped, even if the body panics.
    slot: Slot<M>,
    inbox: Option<mpsc::Receiver<M>>,
    /// The part of [`Inboxes::pending`](Inboxes) that belongs to this worker: the message that is being
    /// processed, and during the drain all messages since its actors were last quiet.
    pending: usize,
}

type Slot<M> = Arc<Mutex<Remaining<M>>>;

/// The parts of a worker that remain when its body has ended.
struct Remaining<M> {
    inbox: Option<mpsc::Receiver<M>>,
    pending: usize,
}

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

    /// Returns the next message, or `None` when the body should return: the workers are being drained,
    /// and no worker and no actor of a worker has work.
    ///
    /// A message counts as processed when this is called again. During the drain, the actors of this
    /// worker must have no work, too. Until then the other workers accept messages that its
    /// processing causes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<M> {
        self.inboxes.set_handling(self.index, false);
        let draining = self.inboxes.draining().clone();
        if !draining.is_cancelled() {
            // One stays pending until the actors were quiet during the drain.
            self.release_to(1);
        }
        loop {
            let inbox = self.inbox.as_mut()?;
            let is_draining = draining.is_cancelled();
            let system = &self.system;
            let has_more = self.pending > 0;
            let quiet = async {
                if is_draining && has_more {
                    until_all_quiet(system).await;
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                biased;
                message = inbox.recv() => return self.begin_handling(message),
                () = self.inboxes.closed() => {
                    inbox.close();
                    let message = inbox.recv().await;
                    return self.begin_handling(message);
                }
                () = quiet => self.release_to(0),
                () = draining.cancelled(), if !is_draining => {}
            }
        }
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

    /// Notes a message that the body is about to process.
    fn begin_handling(&mut self, message: Option<M>) -> Option<M> {
        self.pending += usize::from(message.is_some());
        self.inboxes.set_handling(self.index, message.is_some());
        message
    }

    /// Uncounts pending messages until `keep` are left.
    fn release_to(&mut self, keep: usize) {
        let done = self.pending.saturating_sub(keep);
        if done > 0 {
            self.pending -= done;
            self.inboxes.done(done);
        }
    }
}

impl<M> Drop for Worker<M> {
    fn drop(&mut self) {
        // The actors may still have work: one stays pending until `live` has seen them quiet.
        self.release_to(1);
        let mut slot = lock(&self.slot);
        slot.inbox = self.inbox.take();
        slot.pending += std::mem::take(&mut self.pending);
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
    let slot: Slot<M> = Arc::new(Mutex::new(Remaining { inbox: Some(inbox), pending: 0 }));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            if let Some(inbox) = lock(&slot).inbox.take() {
                // Without a runtime nothing can be waited for.
                let _ = inboxes.count_unprocessed(index, inbox).now_or_never();
            }
            inboxes.done(1);
            let ending = WorkerEnding::Failed {
                error: format!("failed to build a runtime: {error}").into(),
            };
            return WorkerReport::missing(index, ending, inboxes.dead_letters(index));
        }
    };
    // All code on this thread belongs to the worker.
    mark_worker_thread(inboxes.announced().clone());
    let (ending, actors) = runtime.block_on(live(index, &slot, inboxes, countdown, body));
    // Blocking tasks are not awaited.
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
        inbox: lock(slot).inbox.take(),
        pending: 1,
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
            () = countdown.passed(std::time::Duration::ZERO) => WorkerEnding::Cut,
        }
    };
    match ending {
        WorkerEnding::Panicked | WorkerEnding::Cut | WorkerEnding::Hung => {
            inboxes.count_interrupted(index);
        }
        WorkerEnding::Drained | WorkerEnding::Failed { .. } => {}
    }
    let inbox = lock(slot).inbox.take();
    if let Some(inbox) = inbox {
        tokio::select! {
            biased;
            () = inboxes.count_unprocessed(index, inbox) => {}
            () = inboxes.closed() => {}
        }
    }
    // The actors run until the drain begins and no worker has work.
    inboxes.draining().cancelled().await;
    tokio::select! {
        () = until_all_quiet(&system) => {}
        () = inboxes.closed() => {}
    }
    let pending = std::mem::take(&mut lock(slot).pending);
    if pending > 0 {
        inboxes.done(pending);
    }
    inboxes.closed().await;
    let timeout = countdown.remaining().unwrap_or(Timeouts::WORKER_THREADS);
    let actors = system.abort(timeout).await.map(|report| (*report).clone());
    (ending, actors.unwrap_or_else(|_| DrainReport::empty()))
}

/// Waits until the actors of a worker have no work.
async fn until_all_quiet(system: &ActorSystem) {
    until_quiet(|| system.state.nodes().into(), &mut Found::new()).await;
}

fn lock<M>(slot: &Slot<M>) -> MutexGuard<'_, Remaining<M>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
