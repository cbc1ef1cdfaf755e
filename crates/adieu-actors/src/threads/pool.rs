//! The threads of a pool of workers, and how they are joined.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use adieu_core::Deadline;
use futures_util::future::{BoxFuture, FutureExt, Shared, join_all};
use tokio::sync::oneshot;

use super::inbox::Inboxes;
use super::report::{WorkerEnding, WorkerReport, WorkersReport};
use crate::countdown::Countdown;
use crate::timeouts::Timeouts;

/// The worker threads and their queues. Dropping it stops the workers.
pub(super) struct Pool<M> {
    pub(super) inboxes: Arc<Inboxes<M>>,
    pub(super) countdown: Arc<Countdown>,
    threads: Mutex<Vec<Thread>>,
    /// The shutdown of all workers, which all callers await.
    ending: OnceLock<Shared<BoxFuture<'static, Arc<WorkersReport>>>>,
}

/// A worker thread that was started.
pub(super) struct Thread {
    pub(super) handle: JoinHandle<()>,
    pub(super) report: oneshot::Receiver<WorkerReport>,
}

// === impl Pool ===

impl<M> Pool<M> {
    pub(super) fn new(inboxes: Inboxes<M>) -> Self {
        Self {
            inboxes: Arc::new(inboxes),
            countdown: Arc::new(Countdown::new()),
            threads: Mutex::default(),
            ending: OnceLock::new(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, thread: Thread) {
        self.threads().push(thread);
    }

    /// Begins the drain of all workers.
    fn drain(&self, timeout: Duration) {
        self.countdown.shorten(Deadline::after(timeout));
        // At the latest then, workers that only wait for messages from others end.
        self.inboxes.drain(Deadline::after(timeout * 3 / 4));
    }
}

impl<M: Send + 'static> Pool<M> {
    /// Drains and joins all workers. All calls share one result.
    pub(super) async fn shutdown(&self, timeout: Duration) -> Arc<WorkersReport> {
        self.drain(timeout);
        let ending = self.ending.get_or_init(|| {
            let threads = std::mem::take(&mut *self.threads());
            let (inboxes, countdown) = (&self.inboxes, &self.countdown);
            join(threads, Arc::clone(inboxes), Arc::clone(countdown)).map(Arc::new).boxed().shared()
        });
        ending.clone().await
    }
}

impl<M> Drop for Pool<M> {
    fn drop(&mut self) {
        self.drain(Timeouts::WORKER_THREADS);
    }
}

/// Awaits the report of each worker, and joins it.
async fn join<M: Send + 'static>(
    threads: Vec<Thread>,
    inboxes: Arc<Inboxes<M>>,
    countdown: Arc<Countdown>,
) -> WorkersReport {
    let began = tokio::time::Instant::now();
    let joined = threads.into_iter().enumerate().map(|(index, Thread { handle, report })| {
        let (inboxes, countdown) = (&inboxes, &countdown);
        async move {
            let joining = async {
                let report = report.await;
                // This does not block for long: the report is the last act of the thread.
                let joined = tokio::task::spawn_blocking(|| handle.join()).await;
                report.ok().filter(|_| matches!(joined, Ok(Ok(()))))
            };
            tokio::select! {
                biased;
                // A worker that ends without a report has panicked outside its body.
                report = joining => report.unwrap_or_else(|| {
                    WorkerReport::missing(index, WorkerEnding::Panicked, inboxes.abandon(index))
                }),
                // By now its body was dropped, and its actors have had their grace.
                () = countdown.passed(Timeouts::GRACE + Timeouts::GRACE / 2) => {
                    WorkerReport::missing(index, WorkerEnding::Hung, inboxes.abandon(index))
                }
            }
        }
    });
    let mut workers = join_all(joined).await;
    // Other workers may have sent messages to a worker after its report.
    for worker in &mut workers {
        worker.dead_letters = inboxes.dead_letters(worker.index);
    }
    WorkersReport { name: Arc::clone(inboxes.name()), took: began.elapsed(), workers }
}
