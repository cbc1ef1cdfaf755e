//! Describes a step: its hooks, its dependencies, its timeouts and its markers.

use std::fmt;
use std::sync::Arc;

use super::context::{StartCx, StopCx};
use super::hook::{StartHook, StartResult, Started, StopHook};
use crate::task::{BoxError, TaskResult};
use crate::time::Duration;

/// The default timeout of a start.
const START: Duration = Duration::from_secs(30);

/// The default timeout of a stop.
const STOP: Duration = Duration::from_secs(5);

/// A part of the process that is started with it and stopped when it ends: a pool, a cache, a queue,
/// a listener.
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
    /// The reason of [`Step::refuse`].
    pub(super) refused: Option<Arc<str>>,
    start: Option<StartHook>,
    stop: Option<StopHook>,
}

/// Properties that the author of a step declares, because they cannot be detected.
#[derive(Clone, Debug, Default)]
pub(super) struct Markers {
    pub(super) mutates_shared_state: bool,
    pub(super) singleton_guarded: bool,
    pub(super) requires_long_running: bool,
    /// The locks and stores of the step that are local to this process.
    pub(super) process_local: Vec<Arc<str>>,
}

// === impl Step ===

impl Step {
    /// Describes a step without hooks that has 30 seconds to start and 5 seconds to stop.
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

    // --- hooks ---

    /// Sets the start: an async function of a [`StartCx`] that returns nothing, [`Started`], or a
    /// result of either. Without it the step has started as soon as its turn comes.
    pub fn start<F, Fut>(mut self, start: F) -> Self
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output: StartResult> + Send + 'static,
    {
        self.start = Some(StartHook::new(start));
        self
    }

    /// Sets the stop: an async function of a [`StopCx`] that returns nothing or a result.
    ///
    /// It is called once, if the step has started, and after the stop that the start has returned.
    pub fn stop<F, Fut>(mut self, stop: F) -> Self
    where
        F: FnOnce(StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.stop = Some(StopHook::new(stop));
        self
    }

    /// Sets the start and the stop. The stop gets the value that the start has returned.
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

    /// Wraps the start: `f` is called instead of the start, and gets it as an argument. It calls the
    /// start, or returns [`Started::skipped`].
    ///
    /// The value that the start returns contains the stop of the step; see [`Started::wrap_stop`]. If
    /// the wrapper takes time, call [`Step::extend_start_timeout`].
    ///
    /// ```
    /// # use adieu_core::{Started, Step, StartHook, StartCx};
    /// # async fn try_lock() -> Option<()> { None }
    /// fn only_one(step: Step) -> Step {
    ///     step.singleton_guarded().wrap(async |start: StartHook, cx: StartCx| {
    ///         match try_lock().await {
    ///             Some(_lock) => start.start(cx).await,
    ///             None => Ok(Started::skipped("another replica holds the lock")),
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

    /// Removes both hooks, and returns a start that returns all stops of the step.
    pub(super) fn take_hook(&mut self) -> StartHook {
        let start = self.start.take().unwrap_or_else(|| StartHook::new(async |_| {}));
        match self.stop.take() {
            None => start,
            stop => StartHook::new(async move |cx: StartCx| {
                start.start(cx).await.map(|started| started.and_then(stop))
            }),
        }
    }

    // --- order and time ---

    /// Makes this step start after the step that provides the capability, and stop before it.
    pub fn requires(mut self, capability: impl Into<Arc<str>>) -> Self {
        self.requires.push(capability.into());
        self
    }

    /// Declares that this step provides a capability. No other step may provide the same one.
    pub fn provides(mut self, capability: impl Into<Arc<str>>) -> Self {
        self.provides.push(capability.into());
        self
    }

    /// Makes this step start after the step with this id, and stop before it.
    pub fn depends_on(mut self, step: impl Into<Arc<str>>) -> Self {
        self.depends_on.push(step.into());
        self
    }

    /// Sets the priority of the step within its wave. The default is zero, and higher starts first.
    ///
    /// It matters if steps start [one at a time](crate::LifecycleBuilder::one_at_a_time).
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the timeout of the start and of the stop.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.start_timeout(timeout).stop_timeout(timeout)
    }

    /// Sets the timeout of the start.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Extends the timeout of the start, for wrappers that take time themselves.
    pub fn extend_start_timeout(mut self, by: Duration) -> Self {
        self.start_timeout = self.start_timeout.saturating_add(by);
        self
    }

    /// Sets the timeout of the stop.
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.stop_timeout = timeout;
        self
    }

    // --- markers ---

    /// Declares that the start changes shared state: a schema, an index, a queue. In a fleet such a
    /// step must be guarded; see [`DeploymentProfile`](crate::DeploymentProfile).
    pub fn mutates_shared_state(mut self) -> Self {
        self.markers.mutates_shared_state = true;
        self
    }

    /// Declares that a lock ensures that one replica at a time runs the step. The code that wraps the
    /// step in the lock calls this.
    pub fn singleton_guarded(mut self) -> Self {
        self.markers.singleton_guarded = true;
        self
    }

    /// Declares that the step needs a process that lives on between requests: a loop, a consumer, a
    /// timer.
    pub fn requires_long_running(mut self) -> Self {
        self.markers.requires_long_running = true;
        self
    }

    /// Declares that `what`, a lock or a store, is local to this process. In a fleet that causes a
    /// warning.
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

    /// Returns the id of the step.
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
