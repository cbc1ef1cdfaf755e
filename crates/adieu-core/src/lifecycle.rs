//! Start-up: steps in waves, and the same steps in reverse when the process ends.
//!
//! What was started is what must be stopped, so both follow from one graph. [`graph`] puts steps
//! in waves, once; [`machine`] decides which start and which may be stopped; [`start`] and [`stop`]
//! do it, and see the same [`board`].

mod apart;
mod board;
mod context;
mod error;
mod graph;
mod hook;
mod machine;
mod profile;
mod start;
mod step;
mod stop;

use std::fmt;
use std::time::Duration;

pub use context::{StartCx, StopCx};
pub use error::{Act, AssembleError, Problem, StartError, StepError};
use graph::Graph;
pub use hook::{StartHook, StartResult, Started, StopHook};
pub use profile::DeploymentProfile;
pub use step::Step;

use crate::coordinator::Shutdown;
use crate::phase::Phase;

/// What a process starts, in order, and stops in reverse when it ends.
///
/// ```
/// use adieu_core::{DeploymentProfile, Lifecycle, Reason, Shutdown, Step};
/// # struct Pool;
/// # impl Pool {
/// #     async fn connect() -> Result<Self, std::io::Error> { Ok(Pool) }
/// #     async fn close(self) -> Result<(), std::io::Error> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let lifecycle = Lifecycle::builder()
///     .profile(DeploymentProfile::Fleet)
///     .step(
///         Step::new("postgres")
///             .provides("db")
///             .run(async |_| Pool::connect().await, async |pool: Pool, _| pool.close().await),
///     )
///     .step(Step::new("cache").requires("db").start(async |_| println!("warm")))
///     .build()?;
///
/// let shutdown = Shutdown::new();
/// lifecycle.start(&shutdown).await?; // postgres, then cache; then the process may be ready
/// assert!(shutdown.readiness().is_ready());
///
/// let report = shutdown.run(Reason::Unknown).await?; // after all work has drained: postgres
/// assert!(report.is_clean());
/// # Ok(())
/// # }
/// ```
///
/// Values that later steps need, such as the pool, are best put into a
/// [`OnceLock`](std::sync::OnceLock) that both share: a step that requires it finds it there.
///
/// # When steps are stopped
///
/// In a phase of its own, [`Lifecycle::PHASE`], the last one unless you add another: work has
/// drained, loops have ended, actors have stopped, and tasks of [`Phase::CLOSE_RESOURCES`] could
/// still use what is now closed. Each step is a task there, `stop` and its id, so that
/// the report and the line that says what is waited for name it. The phase may take as long as all
/// waves may take, one after another, unless the configuration says otherwise.
#[must_use = "a lifecycle does nothing until it is started"]
pub struct Lifecycle {
    parts: Parts,
}

/// Puts a lifecycle together.
#[must_use = "a lifecycle does nothing until it is built and started"]
#[derive(Debug, Default)]
pub struct LifecycleBuilder {
    steps: Vec<Step>,
    profile: DeploymentProfile,
    one_at_a_time: bool,
}

struct Parts {
    graph: Graph,
    hooks: Vec<StartHook>,
    profile: DeploymentProfile,
    warnings: Vec<String>,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// The phase in which steps are stopped.
    pub const PHASE: Phase = Phase::known("stop-steps");

    /// A lifecycle without steps.
    pub fn builder() -> LifecycleBuilder {
        LifecycleBuilder::default()
    }

    /// Starts the steps, wave by wave; and registers with the shutdown what is to be stopped.
    ///
    /// The steps of a wave start side by side. Each has its own time to start; when that is up its
    /// token fires, and soon after it is aborted. The process is not ready before all have started;
    /// then [`Shutdown::started`] is called.
    ///
    /// If a step fails, panics or takes too long, the others of its wave are cancelled, and what
    /// has started is stopped, in reverse: first the loops that steps have added through
    /// [`StartCx::shutdown`], then wave by wave the steps, each within its own time. All that goes
    /// wrong is in the error, and the process does not become ready.
    ///
    /// If the shutdown begins meanwhile, starts are cancelled as well, but it is the shutdown that
    /// stops what has started, in its own phase: work that has been admitted drains first. See
    /// [`StartError::is_shutdown`].
    ///
    /// Steps run on the shutdown's runtime, or else on the one this is called on.
    ///
    /// # Errors
    ///
    /// If a step did not start or the shutdown began. When it returns, what had started has been
    /// stopped. Nothing was started if there is no runtime, or the shutdown does not take on the
    /// tasks; see [`Shutdown::add_task`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it aborts the starts that are under way, or the stops if it is rolling back. What is
    /// up by then is stopped when the shutdown runs.
    pub async fn start(self, shutdown: &Shutdown) -> Result<(), StartError> {
        // Boxed: it is large, and everybody's `main` holds it.
        let started = Box::pin(start::start(self, shutdown)).await;
        if let Err(error) = &started
            && error.is_shutdown()
        {
            shutdown.note_refusal(error);
        }
        started
    }

    /// The ids of the steps, by wave; in a wave by priority.
    pub fn waves(&self) -> impl Iterator<Item = Vec<&str>> {
        let Graph { ids, waves, .. } = &self.parts.graph;
        waves.iter().map(|wave| wave.iter().map(|&step| &*ids[step]).collect())
    }

    /// How long it takes at most to start: the longest timeout of each wave, one after another.
    #[must_use]
    pub fn start_budget(&self) -> Duration {
        self.parts.graph.start_budget()
    }

    /// How long it takes at most to stop: the longest timeout of each wave, one after another, and
    /// for each wave 400 ms to abort what hangs.
    #[must_use]
    pub fn stop_budget(&self) -> Duration {
        self.parts.graph.stop_budget(|_| true)
    }

    /// What is not wrong, but probably not meant either. [`Lifecycle::start`] says it.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.parts.warnings.iter().map(String::as_str)
    }
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lifecycle")
            .field("profile", &self.parts.profile)
            .field("waves", &self.waves().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

// === impl LifecycleBuilder ===

impl LifecycleBuilder {
    /// Where the process runs. One process alone, if nobody says otherwise.
    pub fn profile(mut self, profile: DeploymentProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Adds a step.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds steps.
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps.extend(steps);
        self
    }

    /// Starts the steps one at a time: within a wave by priority, the highest first, and equal ones
    /// in the order in which they were added. They are stopped one at a time, too, in reverse.
    pub fn one_at_a_time(mut self) -> Self {
        self.one_at_a_time = true;
        self
    }

    /// Puts the steps in waves.
    ///
    /// # Errors
    ///
    /// If steps have the same id or provide the same, require or depend on what is not there, or
    /// wait for each other; if a timeout is zero or endless; or if the profile forbids a step.
    pub fn build(self) -> Result<Lifecycle, AssembleError> {
        let Self { mut steps, profile, one_at_a_time } = self;
        let graph = Graph::assemble(&steps, one_at_a_time)?;
        let warnings = profile.check(&steps)?;
        let hooks = steps.iter_mut().map(Step::take_hook).collect();
        Ok(Lifecycle { parts: Parts { graph, hooks, profile, warnings } })
    }
}
