//! A loop that takes jobs from a source and runs several at a time.
//!
//! The consumer may drop a pending call of `take`, and never a job. Each job runs as a task of its
//! own, under a pass, and is joined and settled even if the source fails.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};

use super::LoopSpec;
use super::backoff::Backoff;
use super::context::LoopCx;
use super::keeper::{Work, within};
use super::source::{Interrupted, JobCx, Source};
use crate::gate::State;
use crate::outcome::Outcome;
use crate::shield::{message_of, shielded};
use crate::task::{BoxError, TaskResult, caught, chain};

/// The pause after a source has returned an empty list.
const EMPTY: Duration = Duration::from_millis(10);

/// The name of a consumer, and how many jobs it runs at a time.
#[derive(Clone, Debug)]
#[must_use = "a consumer does nothing until it is added to a shutdown"]
pub struct Consumer {
    pub(crate) spec: LoopSpec,
    concurrency: usize,
}

/// A consumer as the keeper runs it: `connect` creates a source, `handle` runs a job.
pub(crate) struct Consuming<C, H> {
    pub(crate) consumer: Consumer,
    pub(crate) connect: C,
    pub(crate) handle: Arc<H>,
}

/// A consumer that has a source.
struct Consumption<'a, S: Source, H> {
    cx: &'a LoopCx,
    handle: &'a Arc<H>,
    concurrency: usize,
    source: S,
    /// The jobs that were taken and not begun.
    taken: VecDeque<S::Job>,
    running: JoinSet<Result<(), BoxError>>,
    jobs: HashMap<Id, Arc<S::Job>>,
}

// === impl Consumer ===

impl Consumer {
    /// Describes a consumer that runs one job at a time.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { spec: LoopSpec::new(name), concurrency: 1 }
    }

    /// Sets how many jobs run at a time, at least one.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// Sets how long the consumer pauses before it connects again after a failure of the source.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.spec = self.spec.backoff(backoff);
        self
    }

    /// Sets the seed of the random pauses, for repeatable tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec = self.spec.seed(seed);
        self
    }
}

// === impl Consuming ===

impl<C, Connecting, S, E, H, Handling> Work for Consuming<C, H>
where
    C: FnMut() -> Connecting + Send + 'static,
    Connecting: Future<Output = Result<S, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
    S: Source,
    H: Fn(Arc<S::Job>, JobCx) -> Handling + Send + Sync + 'static,
    Handling: Future<Output: TaskResult> + Send + 'static,
{
    async fn run(&mut self, cx: &LoopCx) -> Result<(), BoxError> {
        let source = tokio::select! {
            source = (self.connect)() => source.map_err(Into::into)?,
            () = cx.takes_no_more() => return Ok(()),
        };
        let consumption = Consumption {
            cx,
            handle: &self.handle,
            concurrency: self.consumer.concurrency,
            source,
            taken: VecDeque::new(),
            running: JoinSet::new(),
            jobs: HashMap::new(),
        };
        consumption.run().await
    }
}

// === impl Consumption ===

impl<S, H, Handling> Consumption<'_, S, H>
where
    S: Source,
    H: Fn(Arc<S::Job>, JobCx) -> Handling + Send + Sync + 'static,
    Handling: Future<Output: TaskResult> + Send + 'static,
{
    async fn run(mut self) -> Result<(), BoxError> {
        let consumed = self.consume().await;
        let cleaned_up = self.clean_up().await;
        consumed.and(cleaned_up)
    }

    /// Takes and runs jobs, until the source has ended or the gate is closed.
    async fn consume(&mut self) -> Result<(), BoxError> {
        loop {
            let state = self.cx.gate.state();
            match state {
                State::Open => self.begin_taken_jobs(),
                // A cordon may last for any time, so another consumer should get the jobs.
                State::Cordoned => self.release().await?,
                State::Closed => return Ok(()),
            }
            let takes = state == State::Open
                && self.taken.is_empty()
                && self.running.len() < self.concurrency;
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next_with_id() => self.settle(ended).await?,
                taken = call(take(&mut self.source)), if takes => {
                    let Some(taken) = taken? else { return Ok(()) };
                    self.taken.extend(taken);
                }
                () = self.cx.gate.until(|gate| gate.state() != state) => {}
            }
        }
    }

    fn begin_taken_jobs(&mut self) {
        while self.running.len() < self.concurrency
            && let Some(job) = self.taken.pop_front()
        {
            let Ok(pass) = self.cx.enter() else {
                return self.taken.push_front(job); // The gate has just closed.
            };
            let pass = match self.label(&job) {
                Some(label) => pass.labelled(label),
                None => pass,
            };
            let job = Arc::new(job);
            let work = {
                let (job, handle) = (Arc::clone(&job), Arc::clone(self.handle));
                let cx = JobCx { stop: self.cx.stop_token() };
                async move { handle(job, cx).await.into_result() }
            };
            let key = self.cx.shared.as_ptr().addr();
            let id = self.running.spawn(pass.scope(within(key, work))).id();
            self.jobs.insert(id, job);
        }
    }

    fn label(&self, job: &S::Job) -> Option<String> {
        // Shielded: a label that panics must not affect the running jobs.
        shielded(|| self.source.label(job)).ok().flatten()
    }

    /// Reports the end of a job to the source.
    async fn settle(
        &mut self,
        ended: Result<(Id, Result<(), BoxError>), JoinError>,
    ) -> Result<(), BoxError> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(job) = self.jobs.remove(&id) else { return Ok(()) };
        let outcome = match ended {
            Ok((_, Ok(()))) => Outcome::Finished,
            Ok((_, Err(error))) if Interrupted::is_cause_of(&error) => Outcome::Cancelled,
            Ok((_, Err(error))) => Outcome::Failed { error: chain(&*error).into() },
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Outcome::Panicked { message: message_of(panic) },
                Err(_) => Outcome::Aborted,
            },
        };
        if matches!(outcome, Outcome::Cancelled | Outcome::Aborted) {
            return call(async { self.source.on_interrupted(&job).await }).await;
        }
        if outcome != Outcome::Finished {
            let what = match self.label(&job) {
                Some(label) => format!("{label} {outcome}"),
                None => outcome.to_string(),
            };
            self.cx.log_failure("job", &what, None);
        }
        call(async { self.source.done(&job, &outcome).await }).await
    }

    async fn release(&mut self) -> Result<(), BoxError> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let jobs = std::mem::take(&mut self.taken).into();
        call(async { self.source.release(jobs).await }).await
    }

    /// Returns unbegun jobs, finishes the others, commits and leaves, in this order. Each step is tried
    /// even if an earlier one fails. The first error is returned.
    async fn clean_up(&mut self) -> Result<(), BoxError> {
        let mut cleared = self.release().await;
        let mut may_finish = true;
        loop {
            tokio::select! {
                biased;
                ended = self.running.join_next_with_id() => match ended {
                    Some(ended) => cleared = cleared.and(self.settle(ended).await),
                    None => break,
                },
                () = self.cx.last_call.cancelled(), if may_finish => {
                    self.running.abort_all();
                    may_finish = false;
                }
            }
        }
        let committed = call(async { self.source.commit().await }).await;
        let left = call(async { self.source.leave().await }).await;
        cleared.and(committed).and(left)
    }
}

/// Takes jobs. Pauses after an empty list, so that a source that does not wait does not spin.
async fn take<S: Source>(source: &mut S) -> Result<Option<Vec<S::Job>>, S::Error> {
    let taken = source.take().await?;
    if taken.as_ref().is_some_and(Vec::is_empty) {
        tokio::time::sleep(EMPTY).await;
    }
    Ok(taken)
}

/// Calls the source. A panic becomes an error, so that it does not affect running jobs.
async fn call<T, E: Into<BoxError>>(
    calling: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match caught(calling).await {
        Ok(result) => result.map_err(Into::into),
        Err(message) => Err(format!("panicked: {message}").into()),
    }
}
