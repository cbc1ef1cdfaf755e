//! The source of a consumer's jobs, and the context of a job.

use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;
use crate::task::BoxError;

/// The source of a consumer's jobs: a queue, a topic, a table of jobs.
///
/// The consumer calls one method at a time, and drops no call before it returns, except
/// [`Source::take`]. If a method fails or panics, the consumer finishes and settles the jobs that it
/// has begun, calls [`Source::leave`], and connects a new source after a pause.
pub trait Source: Send + 'static {
    /// One job.
    type Job: Send + Sync + 'static;
    /// The error of the methods: an error type, a string, or a boxed error.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static;

    /// Waits for jobs, and takes some.
    ///
    /// An empty list is allowed, for example after polling for a while. `None` means that there will
    /// be no further jobs.
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: the consumer drops the pending call when a job ends, the loop is paused or
    /// the shutdown begins. A dropped call must not have taken a job.
    fn take(&mut self) -> impl Future<Output = Result<Option<Vec<Self::Job>>, Self::Error>> + Send;

    /// Called when a job has finished, failed or panicked. Acknowledge the job here.
    fn done(
        &mut self,
        job: &Self::Job,
        outcome: &Outcome,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (job, outcome);
        async { Ok(()) }
    }

    /// Called when a job was begun and not finished: it returned [`Interrupted`], or did not end in
    /// time and was aborted. It is no longer running. Requeue the job here, or store its progress.
    fn on_interrupted(
        &mut self,
        job: &Self::Job,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Called with jobs that were taken and not begun. Return them to the queue here, for another
    /// consumer or for later.
    fn release(
        &mut self,
        jobs: Vec<Self::Job>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Called when every job that was begun has been settled. Commit offsets here.
    fn commit(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// Called at the end. Leave the consumer group and close the connection here.
    fn leave(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// Returns the name of a job in logs and reports.
    fn label(&self, job: &Self::Job) -> Option<String> {
        let _ = job;
        None
    }
}

/// The error of a job that stopped before it was finished, because the shutdown requested that.
///
/// If a handler returns this error, or one that it caused, the job is passed to
/// [`Source::on_interrupted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by the shutdown")]
pub struct Interrupted;

/// The context of a job: it signals when the job must stop.
#[derive(Clone, Debug)]
pub struct JobCx {
    pub(super) stop: CancellationToken,
}

// === impl JobCx ===

impl JobCx {
    /// Waits until the job must stop, finished or not. A job that continues is aborted before the time
    /// of its consumer has elapsed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stops_now(&self) {
        self.stop.cancelled().await;
    }

    /// Returns a token that fires when the job must stop.
    #[must_use]
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Awaits a part of the job, and drops it when the job must stop.
    ///
    /// # Errors
    ///
    /// If the part was dropped.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `step`.
    pub async fn interruptible<T>(&self, step: impl Future<Output = T>) -> Result<T, Interrupted> {
        self.stop.run_until_cancelled(step).await.ok_or(Interrupted)
    }
}

// === impl Interrupted ===

impl Interrupted {
    /// Returns whether this error is, or was caused by, an interruption.
    pub(super) fn is_cause_of(error: &BoxError) -> bool {
        let mut causes =
            std::iter::successors(Some(&**error as &dyn std::error::Error), |error| error.source());
        causes.any(|cause| cause.is::<Self>())
    }
}
