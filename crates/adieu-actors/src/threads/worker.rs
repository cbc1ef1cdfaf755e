//! The life of one worker thread.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adieu_core::TaskResult;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::SendError;
use super::inbox::Inboxes;
use super::report::{WorkerEnding, WorkerReport};
use crate::drain::Countdown;
use crate::report::DrainReport;
use crate::system::{ActorSystem, Timeouts};

/// What the body of a worker thread is given: its actor system, its inbox, and the way to the
/// others.
pub struct Worker<M> {
    index: usize,
    system: ActorSystem,
    inboxes: Arc<Inboxes<M>>,
    /// Gets the inbox back when the body ends, however it does.
    slot: Slot<M>,
    inbox: Option<mpsc::Receiver<M>>,
    /// It has a message that it has not worked off.
    has_one: bool,
}

type Slot<M> = Arc<Mutex<Option<mpsc::Receiver<M>>>>;

impl<M> Worker<M> {
    /// Which one it is, from zero.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inboxes.count()
    }

    /// The actor system of this thread.
    #[must_use]
    pub fn system(&self) -> &ActorSystem {
        &self.system
    }

    /// The next message that it was sent. None when it is to end: when all have been told to drain,
    /// and nobody has anything more to work off.
    ///
    /// A message counts as worked off when the next one is asked for: until then others may still
    /// be sent messages because of it.
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<M> {
        self.worked_off();
        let inbox = self.inbox.as_mut()?;
        let message = tokio::select! {
            biased;
            message = inbox.recv() => message,
            () = self.inboxes.closed() => {
                inbox.close();
                inbox.recv().await
            }
        };
        self.has_one = message.is_some();
        message
    }

    /// Sends a message to another worker, or to itself, waiting for room.
    ///
    /// # Errors
    ///
    /// If nobody takes messages any more, or that worker has ended, or there is none of this
    /// number. The message is in the error; it is counted as a dead letter.
    pub async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.inboxes.send(to, message).await
    }

    /// The way to the other workers, for actors of this one.
    #[must_use]
    pub fn peers(&self) -> Peers<M> {
        Peers { inboxes: Arc::clone(&self.inboxes) }
    }

    /// Fires when all have been told to drain.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        self.inboxes.draining().clone()
    }

    fn worked_off(&mut self) {
        if std::mem::take(&mut self.has_one) {
            self.inboxes.done(1);
        }
    }
}

impl<M> Drop for Worker<M> {
    fn drop(&mut self) {
        self.worked_off();
        *lock(&self.slot) = self.inbox.take();
    }
}

impl<M> fmt::Debug for Worker<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}

/// The way to the workers, for their actors.
pub struct Peers<M> {
    inboxes: Arc<Inboxes<M>>,
}

impl<M> Peers<M> {
    /// Sends a message to a worker, waiting for room.
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
            left_behind(index, &slot, inboxes);
            let ending = WorkerEnding::Failed { error: format!("no runtime: {error}").into() };
            return WorkerReport::without_word(index, ending, inboxes.dead_letters(index));
        }
    };
    let (ending, actors) = runtime.block_on(live(index, &slot, inboxes, countdown, body));
    // What blocks a thread of its own is not waited for.
    runtime.shutdown_background();
    WorkerReport { index, ending, actors, dead_letters: inboxes.dead_letters(index) }
}

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
    let system = ActorSystem::new(format!("{}-{index}", inboxes.name()));
    let worker = Worker {
        index,
        system: system.clone(),
        inboxes: Arc::clone(inboxes),
        slot: Arc::clone(slot),
        inbox: lock(slot).take(),
        has_one: false,
    };
    let ending = {
        let living = AssertUnwindSafe(async { body(worker).await.into_result() }).catch_unwind();
        tokio::select! {
            biased;
            ended = living => match ended {
                Ok(Ok(())) => WorkerEnding::Drained,
                Ok(Err(error)) => WorkerEnding::Failed { error: error.to_string().into() },
                Err(_) => WorkerEnding::Panicked,
            },
            () = countdown.passed(std::time::Duration::ZERO) => WorkerEnding::Cut,
        }
    };
    left_behind(index, slot, inboxes);
    // Its actors live until all are told.
    inboxes.draining().cancelled().await;
    let left = countdown.remaining().unwrap_or(Timeouts::WORKER_THREADS);
    let actors = system.abort(left).await.map(|report| (*report).clone());
    (ending, actors.unwrap_or_else(|_| DrainReport::empty()))
}

/// What a body has not worked off is not lost without a word.
fn left_behind<M>(index: usize, slot: &Slot<M>, inboxes: &Inboxes<M>) {
    let Some(mut inbox) = lock(slot).take() else { return };
    inbox.close();
    let mut left = 0;
    while inbox.try_recv().is_ok() {
        left += 1;
    }
    if left > 0 {
        inboxes.dead(index, left as u64);
        inboxes.done(left);
    }
}

fn lock<M>(slot: &Slot<M>) -> MutexGuard<'_, Option<mpsc::Receiver<M>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
