//! Where a consumer's jobs come from, and what a job is given.

use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;
use crate::task::BoxError;

/// Where a consumer's jobs come from: a queue, a topic, a table of jobs.
///
/// The consumer calls one method at a time, and never drops a call half-way, except
/// [`Source::take`]. When one fails or panics, what has started is finished and settled, the source
/// is told to leave, and after a pause a new one is made.
pub trait Source: Send + 'static {
    /// One job.
    type Job: Send + Sync + 'static;
    /// What can go wrong: an error, a string, a boxed error.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static;

    /// Waits for jobs, and takes some. It may come back with an empty list, after having polled for
    /// a while; `None` means that there will never be any more.
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: while it is pending it is dropped whenever something else is to be
    /// done, and must not have taken anything by then.
    fn take(&mut self) -> impl Future<Output = Result<Option<Vec<Self::Job>>, Self::Error>> + Send;

    /// A job has ended by itself: finished, failed or panicked. The place to acknowledge it.
    fn done(
        &mut self,
        job: &Self::Job,
        outcome: &Outcome,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (job, outcome);
        async { Ok(()) }
    }

    /// A job was begun and not finished: it said that it was [`Interrupted`], or did not end in
    /// time and was aborted. It is not running any more. The place to requeue it, or to note how
    /// far it came.
    fn on_interrupted(
        &mut self,
        job: &Self::Job,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// These jobs were taken and not begun: they are for somebody else, or for later.
    fn give_back(
        &mut self,
        jobs: Vec<Self::Job>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// All that was begun has been settled: the place to commit offsets.
    fn commit(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// No more will be taken: the place to leave the group and to close the connection.
    fn leave(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// What a job is called when it is waited for.
    fn label(&self, job: &Self::Job) -> Option<String> {
        let _ = job;
        None
    }
}

/// A job was told to stop, and has. Return it, or an error that it caused, from a handler, and the
/// job is given to [`Source::on_interrupted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted: all is to stop now")]
pub struct Interrupted;

/// What a job is given: when to stop.
#[derive(Clone, Debug)]
pub struct JobCx {
    pub(super) stop: CancellationToken,
}

// === impl JobCx ===

impl JobCx {
    /// Waits until the job is to stop now, finished or not. If it goes on, it is aborted before the
    /// time of its consumer is up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stops_now(&self) {
        self.stop.cancelled().await;
    }

    /// Fires when the job is to stop now.
    #[must_use]
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Awaits a step of the job that may be dropped half-way when the job is to stop now.
    ///
    /// # Errors
    ///
    /// If it was dropped.
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
    /// Whether this error is, or was caused by, an interruption.
    pub(super) fn is_cause_of(error: &BoxError) -> bool {
        let mut causes =
            std::iter::successors(Some(&**error as &dyn std::error::Error), |error| error.source());
        causes.any(|cause| cause.is::<Self>())
    }
}
