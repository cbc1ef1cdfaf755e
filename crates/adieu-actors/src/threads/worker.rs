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
use crate::countdown::Countdown;
use crate::quiet::{Found, until_quiet};
use crate::report::DrainReport;
use crate::system::ActorSystem;
use crate::timeouts::Timeouts;

/// What the body of a worker thread is given: its actor system, its inbox, and the way to the
/// others.
pub struct Worker<M> {
    index: usize,
    system: ActorSystem,
    inboxes: Arc<Inboxes<M>>,
    /// Gets the inbox back when the body ends, however it does.
    slot: Slot<M>,
    inbox: Option<mpsc::Receiver<M>>,
    /// How many of those that are [pending](Inboxes) it answers for: the message that it has, and
    /// while draining all that it had since its actors were last quiet.
    pending: usize,
}

type Slot<M> = Arc<Mutex<Kept<M>>>;

/// What is left when the body has ended.
struct Kept<M> {
    inbox: Option<mpsc::Receiver<M>>,
    pending: usize,
}

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

    /// Returns the next message that it was sent, or `None` when it is to end: when all have been
    /// told to drain, and no worker and no actor of a worker has anything more to do.
    ///
    /// A message counts as processed when the next one is asked for; while draining, when in
    /// addition the actors of this worker have nothing to do. Until then others accept messages
    /// that are sent because of it.
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<M> {
        self.inboxes.handles(self.index, false);
        let draining = self.inboxes.draining().clone();
        if !draining.is_cancelled() {
            // One is kept until the actors were quiet while draining.
            self.release(1);
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
                message = inbox.recv() => return self.has(message),
                () = self.inboxes.closed() => {
                    inbox.close();
                    let message = inbox.recv().await;
                    return self.has(message);
                }
                () = quiet => self.release(0),
                () = draining.cancelled(), if !is_draining => {}
            }
        }
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

    /// Answers for the message that it is about to process.
    fn has(&mut self, message: Option<M>) -> Option<M> {
        self.pending += usize::from(message.is_some());
        self.inboxes.handles(self.index, message.is_some());
        message
    }

    /// Answers for no more than this many.
    fn release(&mut self, keep: usize) {
        let done = self.pending.saturating_sub(keep);
        if done > 0 {
            self.pending -= done;
            self.inboxes.done(done);
        }
    }
}

impl<M> Drop for Worker<M> {
    fn drop(&mut self) {
        // Its actors may still be at work: whatever runs the worker answers for them.
        self.release(1);
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
    let slot: Slot<M> = Arc::new(Mutex::new(Kept { inbox: Some(inbox), pending: 0 }));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            left_behind(index, &slot, inboxes);
            inboxes.done(1);
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
        inbox: lock(slot).inbox.take(),
        pending: 1,
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
    match ending {
        WorkerEnding::Panicked | WorkerEnding::Cut | WorkerEnding::Hung => {
            inboxes.interrupted(index);
        }
        WorkerEnding::Drained | WorkerEnding::Failed { .. } => {}
    }
    left_behind(index, slot, inboxes);
    // Its actors live until all are told, and until no worker has anything to do.
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
    let left = countdown.remaining().unwrap_or(Timeouts::WORKER_THREADS);
    let actors = system.abort(left).await.map(|report| (*report).clone());
    (ending, actors.unwrap_or_else(|_| DrainReport::empty()))
}

/// Resolves when the actors of a worker have nothing to do.
async fn until_all_quiet(system: &ActorSystem) {
    until_quiet(|| system.inner.all(), &mut Found::new()).await;
}

/// What a body has not processed is counted.
fn left_behind<M>(index: usize, slot: &Slot<M>, inboxes: &Inboxes<M>) {
    let Some(mut inbox) = lock(slot).inbox.take() else { return };
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

fn lock<M>(slot: &Slot<M>) -> MutexGuard<'_, Kept<M>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
