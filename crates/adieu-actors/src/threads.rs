//! Worker threads, each with a runtime and an actor system of its own.

mod inbox;
mod report;
mod worker;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use adieu_core::{AddTaskError, Deadline, Phase, Shutdown, TaskResult, TaskSpec};
use futures_util::future::{BoxFuture, FutureExt, Shared, join_all};
use tokio::sync::oneshot;

pub use report::{WorkerEnding, WorkerReport, WorkersReport};
pub use worker::{Peers, Worker};

use crate::countdown::Countdown;
use crate::timeouts::Timeouts;
use inbox::Inboxes;
use worker::run;

/// Threads that each run actors on a runtime of their own, where nothing crosses cores unless it is
/// sent. See [`WorkerThreads::builder`].
///
/// One signal reaches them all. Each drains in its own runtime, side by side: it processes what the
/// others have sent it, then its body ends, then its actors are drained. A message that is sent to
/// a worker is processed, or comes back as an error and is a dead letter; none is lost silently.
/// Messages that workers and their actors send each other while they drain are still processed,
/// until no worker and no actor has anything to do.
///
/// Dropping the last handle tells them to stop, but does not wait.
pub struct WorkerThreads<M> {
    pool: Arc<Pool<M>>,
}

/// How to start them.
#[derive(Debug)]
#[must_use = "they do not start by themselves"]
pub struct WorkerThreadsBuilder {
    name: Arc<str>,
    count: usize,
    room: usize,
}

/// Why they could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There have to be some.
    #[error("{name}: zero worker threads do nothing; ask for one or more")]
    None {
        /// What they were to be called.
        name: Arc<str>,
    },
    /// The system gave us no thread.
    #[error("{name}: no thread for worker {index}")]
    Thread {
        /// What they were to be called.
        name: Arc<str>,
        /// Which one.
        index: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

pub(crate) struct Pool<M> {
    name: Arc<str>,
    inboxes: Arc<Inboxes<M>>,
    countdown: Arc<Countdown>,
    threads: Mutex<Vec<Thread>>,
    ending: std::sync::OnceLock<Shared<BoxFuture<'static, Arc<WorkersReport>>>>,
}

struct Thread {
    handle: JoinHandle<()>,
    report: oneshot::Receiver<WorkerReport>,
}

// === impl WorkerThreads ===

impl WorkerThreads<()> {
    /// Worker threads of this name; as many as there are processors, unless told otherwise.
    ///
    /// ```
    /// use adieu_actors::{Timeouts, WorkerThreads};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let threads = WorkerThreads::builder("orders").count(2).start(async |mut worker| {
    ///     // worker.system().spawn(..) actors here.
    ///     while let Some(order) = worker.recv().await {
    ///         let _: u32 = order;
    ///     }
    /// })?;
    /// threads.send(0, 7).await?;
    /// let report = threads.shutdown(Timeouts::WORKER_THREADS).await;
    /// assert!(report.is_clean(), "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(name: impl Into<Arc<str>>) -> WorkerThreadsBuilder {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        WorkerThreadsBuilder { name: name.into(), count, room: 1024 }
    }
}

impl<M: Send + 'static> WorkerThreads<M> {
    /// What they are called.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.pool.name
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pool.inboxes.count()
    }

    /// Sends a message to one of them, waiting for room.
    ///
    /// # Errors
    ///
    /// If they are being shut down, or that worker has ended, or there is none of this number. The
    /// message is in the error; it is counted as a dead letter.
    pub async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.pool.inboxes.send_from_outside(to, message).await
    }

    /// Makes them part of a coordinated shutdown: its phase `actor-system-terminate` shuts them down.
    ///
    /// # Errors
    ///
    /// If the shutdown has come too far for another task in that phase.
    pub fn on(&self, shutdown: &Shutdown) -> Result<(), AddTaskError> {
        let (inside, described) = (Arc::clone(&self.pool), Arc::clone(&self.pool));
        let task = TaskSpec::new(format!("stop worker threads {}", self.name()))
            .describe(move || described.inboxes.waits_for());
        shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, task, async move |cx| {
            let left = cx.remaining();
            let timeout = left.saturating_sub(Timeouts::GRACE * 2).max(left / 2);
            let threads = Self { pool: inside };
            let report = tokio::select! {
                biased;
                report = threads.shutdown(timeout) => report,
                () = cx.cancelled() => threads.shutdown(Duration::ZERO).await,
            };
            if report.is_clean() { Ok(()) } else { Err(report.to_string()) }
        })?;
        Ok(())
    }

    /// Tells all of them to drain, joins them, and says how it went. Every call awaits the same
    /// result; one with less time leaves less for all.
    ///
    /// A worker that has not ended when the time is up is cut short, and its actors are killed. One
    /// that blocks its thread even then is given up, and reported as hung.
    ///
    /// # Cancel safety
    ///
    /// They go on draining, and end by themselves; await it again to join them.
    pub async fn shutdown(&self, timeout: Duration) -> Arc<WorkersReport> {
        self.pool.drain(timeout);
        let ending = self.pool.ending.get_or_init(|| {
            let threads = {
                let mut threads = self.pool.threads.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *threads)
            };
            let (inboxes, countdown) = (&self.pool.inboxes, &self.pool.countdown);
            join(threads, Arc::clone(inboxes), Arc::clone(countdown)).map(Arc::new).boxed().shared()
        });
        ending.clone().await
    }
}

impl<M> Clone for WorkerThreads<M> {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool) }
    }
}

impl<M> fmt::Debug for WorkerThreads<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerThreads").field("name", &self.pool.name).finish_non_exhaustive()
    }
}

// === impl Pool ===

impl<M> Pool<M> {
    fn drain(&self, timeout: Duration) {
        self.countdown.shorten(Deadline::after(timeout));
        // Workers that only wait for what others might still send them end then.
        self.inboxes.drain(Deadline::after(timeout * 3 / 4));
    }
}

impl<M> Drop for Pool<M> {
    fn drop(&mut self) {
        self.drain(Timeouts::WORKER_THREADS);
    }
}

/// Awaits what each worker says of itself, and joins it.
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
                // It has nothing more to do.
                let joined = tokio::task::spawn_blocking(|| handle.join()).await;
                report.ok().filter(|_| matches!(joined, Ok(Ok(()))))
            };
            tokio::select! {
                biased;
                // One that ends without a word has panicked where nobody catches it.
                report = joining => report.unwrap_or_else(|| {
                    WorkerReport::without_word(index, WorkerEnding::Panicked, inboxes.abandon(index))
                }),
                // Its body has been cut short by now, and its actors have had their grace.
                () = countdown.passed(Timeouts::GRACE + Timeouts::GRACE / 2) => {
                    WorkerReport::without_word(index, WorkerEnding::Hung, inboxes.abandon(index))
                }
            }
        }
    });
    let mut workers = join_all(joined).await;
    // Others may have sent to a worker after it had reported.
    for worker in &mut workers {
        worker.dead_letters = inboxes.dead_letters(worker.index);
    }
    WorkersReport { name: Arc::clone(inboxes.name()), took: began.elapsed(), workers }
}

// === impl WorkerThreadsBuilder ===

impl WorkerThreadsBuilder {
    /// So many threads.
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Room for so many messages in front of each worker; 1,024 if nothing is said.
    pub fn room(mut self, messages: usize) -> Self {
        self.room = messages.max(1);
        self
    }

    /// Starts them. Each runs `body` in a current-thread runtime of its own.
    ///
    /// The body should end when [`Worker::recv`] gives no more; then the actors of this worker are
    /// drained. If it ends earlier the actors live on, but no more messages are taken. What it
    /// returns as an error is reported.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had; those that were started are told to stop.
    pub fn start<M, F, R>(self, body: F) -> Result<WorkerThreads<M>, StartError>
    where
        M: Send + 'static,
        F: AsyncFn(Worker<M>) -> R + Send + Sync + 'static,
        R: TaskResult,
    {
        let Self { name, count, room } = self;
        if count == 0 {
            return Err(StartError::None { name });
        }
        let (inboxes, receivers) = Inboxes::new(Arc::clone(&name), count, room);
        let pool = Arc::new(Pool {
            name: Arc::clone(&name),
            inboxes: Arc::new(inboxes),
            countdown: Arc::new(Countdown::new()),
            threads: Mutex::default(),
            ending: std::sync::OnceLock::new(),
        });
        let body = Arc::new(body);
        for (index, inbox) in receivers.into_iter().enumerate() {
            let (says, report) = oneshot::channel();
            let (inboxes, countdown) = (Arc::clone(&pool.inboxes), Arc::clone(&pool.countdown));
            let body = Arc::clone(&body);
            let work = move || {
                let report = run(index, inbox, &inboxes, &countdown, &*body);
                let _ = says.send(report); // Nobody listens when it has been given up.
            };
            let builder = std::thread::Builder::new().name(format!("{name}-{index}"));
            let handle = builder.spawn(work).map_err(|source| StartError::Thread {
                name: Arc::clone(&name),
                index,
                source,
            })?;
            let mut threads = pool.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.push(Thread { handle, report });
        }
        Ok(WorkerThreads { pool })
    }
}

/// Why a message was not sent to a worker. It is counted as a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {to} takes no more messages")]
#[non_exhaustive]
pub struct SendError<M> {
    /// Which worker.
    pub to: usize,
    /// The message.
    pub message: M,
}
