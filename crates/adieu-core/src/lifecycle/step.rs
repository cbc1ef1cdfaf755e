//! Describes something that is started, and what it takes to stop it.

use std::fmt;
use std::sync::Arc;

use super::context::{StartCx, StopCx};
use super::hook::{StartHook, StartResult, Started, StopHook};
use crate::task::{BoxError, TaskResult};
use crate::time::Duration;

/// How long a start may take that says nothing else.
const START: Duration = Duration::from_secs(30);

/// How long a stop may take that says nothing else.
const STOP: Duration = Duration::from_secs(5);

/// Something that is started when the process starts, and stopped when it ends: a pool, a cache, a
/// queue, a listener.
///
/// ```
/// use adieu_core::Step;
/// use std::time::Duration;
/// # struct Pool;
/// # impl Pool {
/// #     async fn connect() -> Result<Self, std::io::Error> { Ok(Pool) }
/// #     async fn close(self) {}
/// # }
///
/// let step = Step::new("postgres")
///     .provides("db")
///     .run(async |_| Pool::connect().await, async |pool: Pool, _| pool.close().await)
///     .start_timeout(Duration::from_secs(10))
///     .stop_timeout(Duration::from_secs(2));
/// ```
#[must_use = "a step does nothing until it is part of a lifecycle"]
pub struct Step {
    pub(super) id: Arc<str>,
    pub(super) requires: Vec<Arc<str>>,
    pub(super) provides: Vec<Arc<str>>,
    pub(super) depends_on: Vec<Arc<str>>,
    pub(super) priority: i32,
    pub(super) start_timeout: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) markers: Markers,
    /// Why it cannot work, if an adapter has found that out.
    pub(super) refused: Option<Arc<str>>,
    start: Option<StartHook>,
    stop: Option<StopHook>,
}

/// What the author of a step says of it, since nobody can see it from outside.
#[derive(Clone, Debug, Default)]
pub(super) struct Markers {
    pub(super) mutates_shared_state: bool,
    pub(super) singleton_guarded: bool,
    pub(super) requires_long_running: bool,
    /// What of it is known to this process alone.
    pub(super) process_local: Vec<Arc<str>>,
}

// === impl Step ===

impl Step {
    /// A step of this id that does nothing yet, with 30 seconds to start and 5 to stop.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            requires: Vec::new(),
            provides: Vec::new(),
            depends_on: Vec::new(),
            priority: 0,
            start_timeout: START,
            stop_timeout: STOP,
            markers: Markers::default(),
            refused: None,
            start: None,
            stop: None,
        }
    }

    // --- what it does ---

    /// What starts it: an async function of a [`StartCx`] that returns nothing, [`Started`], or a
    /// result of either. Without it the step has started as soon as its turn comes.
    pub fn start<F, Fut>(mut self, start: F) -> Self
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output: StartResult> + Send + 'static,
    {
        self.start = Some(StartHook::new(start));
        self
    }

    /// What stops it: an async function of a [`StopCx`] that returns nothing or a result. It is
    /// called if the step has started, once, and after what the start itself has handed over.
    pub fn stop<F, Fut>(mut self, stop: F) -> Self
    where
        F: FnOnce(StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.stop = Some(StopHook::new(stop));
        self
    }

    /// What starts it and what stops it; the stop is given what the start has returned.
    pub fn run<T, E, F, Starting, G, Stopping>(self, start: F, stop: G) -> Self
    where
        F: FnOnce(StartCx) -> Starting + Send + 'static,
        Starting: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
        G: FnOnce(T, StopCx) -> Stopping + Send + 'static,
        Stopping: Future<Output: TaskResult> + Send + 'static,
    {
        self.start(async move |cx: StartCx| {
            let value = start(cx).await.map_err(Into::<BoxError>::into)?;
            Ok::<_, BoxError>(Started::stopped_by(move |cx| stop(value, cx)))
        })
    }

    /// Puts something around the start: `f` is called in its place, and calls it, or does not and
    /// returns [`Started::skipped`]. What stops the step so far comes with what the start returns;
    /// see [`Started::wrap_stop`]. See also [`Step::extend_start_timeout`].
    ///
    /// ```
    /// # use adieu_core::{Started, Step, StartHook, StartCx};
    /// # async fn try_lock() -> Option<()> { None }
    /// fn only_one(step: Step) -> Step {
    ///     step.singleton_guarded().wrap(async |start: StartHook, cx: StartCx| {
    ///         match try_lock().await {
    ///             Some(_lock) => start.start(cx).await,
    ///             None => Ok(Started::skipped("somebody else does it")),
    ///         }
    ///     })
    /// }
    /// ```
    pub fn wrap<F, Fut>(mut self, f: F) -> Self
    where
        F: FnOnce(StartHook, StartCx) -> Fut + Send + 'static,
        Fut: Future<Output: StartResult> + Send + 'static,
    {
        let inner = self.take_hook();
        self.start(move |cx| f(inner, cx))
    }

    /// The start that hands over all that stops the step. What is left has neither.
    pub(super) fn take_hook(&mut self) -> StartHook {
        let start = self.start.take().unwrap_or_else(|| StartHook::new(async |_| {}));
        match self.stop.take() {
            None => start,
            stop => StartHook::new(async move |cx: StartCx| {
                start.start(cx).await.map(|started| started.and_then(stop))
            }),
        }
    }

    // --- when ---

    /// Starts only when the step that provides this capability has; and is stopped before it.
    pub fn requires(mut self, capability: impl Into<Arc<str>>) -> Self {
        self.requires.push(capability.into());
        self
    }

    /// Provides a capability, which no other step does.
    pub fn provides(mut self, capability: impl Into<Arc<str>>) -> Self {
        self.provides.push(capability.into());
        self
    }

    /// Starts only when the step of this id has; and is stopped before it.
    pub fn depends_on(mut self, step: impl Into<Arc<str>>) -> Self {
        self.depends_on.push(step.into());
        self
    }

    /// Comes first in its wave if this is higher than that of others; zero if nobody says. It
    /// matters where steps are started [one at a time](crate::LifecycleBuilder::one_at_a_time).
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// How long it may take to start, and to stop.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.start_timeout(timeout).stop_timeout(timeout)
    }

    /// How long it may take to start.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Gives it more time to start: for who puts something around it that takes time, too.
    pub fn extend_start_timeout(mut self, by: Duration) -> Self {
        self.start_timeout = self.start_timeout.saturating_add(by);
        self
    }

    /// How long it may take to stop.
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.stop_timeout = timeout;
        self
    }

    // --- what it is ---

    /// Says that its start changes what other replicas see: a schema, an index, a queue. In a fleet
    /// it must be guarded; see [`DeploymentProfile`](crate::DeploymentProfile).
    pub fn mutates_shared_state(mut self) -> Self {
        self.markers.mutates_shared_state = true;
        self
    }

    /// Says that a lock sees to it that one replica at a time does it. Whoever puts that lock
    /// around it says so.
    pub fn singleton_guarded(mut self) -> Self {
        self.markers.singleton_guarded = true;
        self
    }

    /// Says that it needs a process that lives on between requests: a loop, a consumer, a timer.
    pub fn requires_long_running(mut self) -> Self {
        self.markers.requires_long_running = true;
        self
    }

    /// Says that `what`, a lock or a store, is known to this process alone. In a fleet that is
    /// warned of.
    pub fn process_local(mut self, what: impl Into<Arc<str>>) -> Self {
        self.markers.process_local.push(what.into());
        self
    }

    /// Makes [`LifecycleBuilder::build`](crate::LifecycleBuilder::build) fail for this reason.
    ///
    /// For an adapter that wraps a step and finds that the step cannot work as it was declared. The
    /// first reason counts.
    pub fn refuse(mut self, why: impl Into<Arc<str>>) -> Self {
        self.refused.get_or_insert_with(|| why.into());
        self
    }

    /// The step's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("id", &self.id)
            .field("requires", &self.requires)
            .field("provides", &self.provides)
            .field("depends_on", &self.depends_on)
            .field("markers", &self.markers)
            .finish_non_exhaustive()
    }
}
