//! Worker threads, each with a runtime and an actor system of its own.

mod builder;
mod inbox;
mod pool;
mod report;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::adapter::{WorkSource, account_for, warn_of_undrained_actors};
use adieu_core::{AddTaskError, Deadline, Phase, Shutdown, TaskSpec};
pub use builder::{StartError, WorkerThreadsBuilder};
pub use inbox::SendError;
use pool::Pool;
pub use report::{WorkerEnding, WorkerReport, WorkersReport};
pub use worker::{Peers, Worker};

use crate::timeouts::Timeouts;

/// Threads that each run actors on a runtime of their own. Only messages cross from one thread to
/// another. See [`WorkerThreads::builder`].
///
/// [`shutdown`](Self::shutdown) drains all workers concurrently, each in its own runtime: a worker
/// processes the messages that it was sent, then its body returns, then its actors are drained.
///
/// A message that is sent to a worker is processed, or is returned as an error and counted as a dead
/// letter. While the workers drain, messages that they and their actors send each other are still
/// accepted, until no worker and no actor has work. If the workers are part of a shutdown, that
/// includes all actor systems and worker threads of the shutdown.
///
/// Dropping the last handle stops the workers, but does not wait for them.
pub struct WorkerThreads<M> {
    pool: Arc<Pool<M>>,
}

// === impl WorkerThreads ===

impl<M: Send + 'static> WorkerThreads<M> {
    /// Returns the name of the worker threads.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.pool.inboxes.name()
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pool.inboxes.count()
    }

    /// Sends a message to a worker. Waits while its queue is full.
    ///
    /// # Errors
    ///
    /// If the workers are being shut down, the worker has ended, or there is no worker with this index.
    /// The error contains the message. If the worker exists, the message is counted as a dead letter.
    pub async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.pool.inboxes.send_from_outside(to, message).await
    }

    /// Adds the workers to a coordinated shutdown: its phase `actor-system-terminate` shuts them down.
    ///
    /// # Errors
    ///
    /// If the phase `actor-system-terminate` accepts no more tasks.
    pub fn on(&self, shutdown: &Shutdown) -> Result<(), AddTaskError> {
        // Before the task is added, because the task may run at once.
        self.pool.join(shutdown);
        let (pool, described) = (Arc::clone(&self.pool), Arc::clone(&self.pool));
        let task = TaskSpec::new(format!("stop worker threads {}", self.name()))
            .describe(move || described.inboxes.pending_workers());
        let added = shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, task, async move |cx| {
            let left = cx.remaining();
            let (timeout, end) = Timeouts::within(left, Timeouts::GRACE * 2);
            pool.countdown.shorten_grace(Deadline::after(end));
            let report = tokio::select! {
                biased;
                report = pool.shutdown_in_group(cx.reason(), timeout) => report,
                () = cx.cancelled() => {
                    let soon = Deadline::after(Timeouts::GRACE_AFTER_CUT);
                    pool.countdown.shorten_grace(soon);
                    pool.shutdown(Duration::ZERO).await
                }
            };
            pool.mark_reported();
            if !report.is_clean() {
                return Err(pool.describe(&report));
            }
            pool.take_unreported_of_group().map_or(Ok(()), Err)
        });
        added.inspect_err(|_| self.pool.leave_group())?;
        let [lost, remaining, using] = [(); 3].map(|()| Arc::clone(&self.pool));
        let source = WorkSource::new(format!("worker threads {}", self.name()))
            .lost(move || lost.take_lost())
            .remaining(move || remaining.remaining())
            .using_resources(move || using.undrained_work());
        account_for(shutdown, source);
        warn_of_undrained_actors(shutdown);
        Ok(())
    }

    /// Drains and joins all workers. Every call awaits the same shutdown. A call with a shorter timeout
    /// shortens it for all callers.
    ///
    /// If a worker has not ended when the timeout has elapsed, its body is dropped, and its actors are
    /// killed. A worker that blocks its thread even then is abandoned, and reported as hung.
    ///
    /// # Cancel safety
    ///
    /// The workers continue to drain. Call it again to join them.
    pub async fn shutdown(&self, timeout: Duration) -> Arc<WorkersReport> {
        self.pool.shutdown(timeout).await
    }
}

impl<M> Clone for WorkerThreads<M> {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool) }
    }
}

impl<M> fmt::Debug for WorkerThreads<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerThreads")
            .field("name", self.pool.inboxes.name())
            .finish_non_exhaustive()
    }
}
