//! A loop that takes jobs from a source and runs several at a time.
//!
//! What is dropped when something else is to be done is the taking, never a job: each runs as a
//! task of its own, under a pass, and is joined and settled whatever happens to the source.

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

/// How long the taking rests when there was nothing to take.
const EMPTY: Duration = Duration::from_millis(10);

/// Names a consumer, and says how many jobs it runs at a time.
#[derive(Clone, Debug)]
#[must_use = "a consumer does nothing until it is added to a shutdown"]
pub struct Consumer {
    pub(crate) spec: LoopSpec,
    concurrency: usize,
}

/// A consumer as the keeper runs it: `connect` makes a source, `handle` does a job.
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
    /// Taken, not begun.
    taken: VecDeque<S::Job>,
    running: JoinSet<Result<(), BoxError>>,
    jobs: HashMap<Id, Arc<S::Job>>,
}

// === impl Consumer ===

impl Consumer {
    /// A consumer of this name that runs one job at a time.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { spec: LoopSpec::new(name), concurrency: 1 }
    }

    /// Runs up to so many jobs at a time; at least one.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// How long it pauses before it makes a new source, when one has failed.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.spec = self.spec.backoff(backoff);
        self
    }

    /// Makes what is random about it repeatable, for tests.
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
        let left = self.clear_up().await;
        consumed.and(left)
    }

    /// Takes jobs and runs them, until there are no more or none may be taken.
    async fn consume(&mut self) -> Result<(), BoxError> {
        loop {
            let state = self.cx.gate.state();
            match state {
                State::Open => self.begin_what_was_taken(),
                // Nobody knows for how long: somebody else may have them.
                State::Cordoned => self.give_back().await?,
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

    fn begin_what_was_taken(&mut self) {
        while self.running.len() < self.concurrency
            && let Some(job) = self.taken.pop_front()
        {
            let Ok(pass) = self.cx.enter() else {
                return self.taken.push_front(job); // The gate was shut just now.
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
        // Jobs are running: they must not go down with one that cannot be named.
        shielded(|| self.source.label(job)).ok().flatten()
    }

    /// A job is not running any more: says so to the source.
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

    async fn give_back(&mut self) -> Result<(), BoxError> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let jobs = std::mem::take(&mut self.taken).into();
        call(async { self.source.give_back(jobs).await }).await
    }

    /// Ends in order, whatever brought it about: gives back, finishes, commits, leaves. All of it
    /// is tried; the first error counts.
    async fn clear_up(&mut self) -> Result<(), BoxError> {
        let mut cleared = self.give_back().await;
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

/// Takes jobs. A source that has none should have waited; one that does not must not spin.
async fn take<S: Source>(source: &mut S) -> Result<Option<Vec<S::Job>>, S::Error> {
    let taken = source.take().await?;
    if taken.as_ref().is_some_and(Vec::is_empty) {
        tokio::time::sleep(EMPTY).await;
    }
    Ok(taken)
}

/// Calls the source. A panic in it is an error like any other: it must not take jobs with it.
async fn call<T, E: Into<BoxError>>(
    calling: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match caught(calling).await {
        Ok(result) => result.map_err(Into::into),
        Err(message) => Err(format!("panicked: {message}").into()),
    }
}
