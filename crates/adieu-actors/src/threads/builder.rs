//! Configures and starts worker threads.

use std::sync::Arc;

use adieu_core::TaskResult;
use tokio::sync::oneshot;

use super::WorkerThreads;
use super::inbox::Inboxes;
use super::pool::{Pool, Thread};
use super::worker::{Worker, run};

/// Configures and starts worker threads. Returned by [`WorkerThreads::builder`].
#[derive(Debug)]
#[must_use = "the threads do not start until `start` is called"]
pub struct WorkerThreadsBuilder {
    name: Arc<str>,
    count: usize,
    room: usize,
}

/// Why worker threads were not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The number of threads is zero.
    #[error(
        "worker threads {name} were not started: their number is zero, at least one is required"
    )]
    None {
        /// The name of the worker threads.
        name: Arc<str>,
    },
    /// The operating system could not start a thread.
    #[error("worker threads {name} were not started: failed to start the thread of worker {index}")]
    Thread {
        /// The name of the worker threads.
        name: Arc<str>,
        /// The index of the worker.
        index: usize,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

// === impl WorkerThreads ===

impl WorkerThreads<()> {
    /// Returns a builder for worker threads with this name.
    ///
    /// ```
    /// use adieu_actors::{Timeouts, Worker, WorkerThreads};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let threads = WorkerThreads::builder("orders").count(2).start(async |mut worker: Worker<u32>| {
    ///     // Spawn actors here: worker.system().spawn(..)
    ///     while let Some(order) = worker.recv().await {
    ///         order.process(async |order| println!("{order}")).await;
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

// === impl WorkerThreadsBuilder ===

impl WorkerThreadsBuilder {
    /// Sets the number of threads. The default is the number of processors.
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Sets how many messages are queued for each worker. The default is 1,024.
    pub fn room(mut self, messages: usize) -> Self {
        self.room = messages.max(1);
        self
    }

    /// Starts the threads. Each runs `body` in a current-thread runtime of its own.
    ///
    /// The body should return when [`Worker::recv`] returns `None`. Then the actors of this worker are
    /// drained. If the body returns earlier, the actors continue to run, but the worker refuses
    /// messages. An error that the body returns is part of the report.
    ///
    /// # Errors
    ///
    /// If `count` is zero, or the operating system cannot start a thread. Threads that were started
    /// before are stopped.
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
        let pool = Pool::new(inboxes);
        let body = Arc::new(body);
        for (index, inbox) in receivers.into_iter().enumerate() {
            let (sender, report) = oneshot::channel();
            let (inboxes, countdown) = (Arc::clone(&pool.inboxes), Arc::clone(&pool.countdown));
            let body = Arc::clone(&body);
            let work = move || {
                let report = run(index, inbox, &inboxes, &countdown, &*body);
                let _ = sender.send(report); // Fails if the worker was reported as hung.
            };
            let builder = std::thread::Builder::new().name(format!("{name}-{index}"));
            let handle = builder.spawn(work).map_err(|source| StartError::Thread {
                name: Arc::clone(&name),
                index,
                source,
            })?;
            pool.add(Thread { handle, report });
        }
        Ok(WorkerThreads { pool: Arc::new(pool) })
    }
}
