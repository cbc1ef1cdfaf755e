//! Starts steps in waves, and stops them in reverse order when the process ends.
//!
//! Starting and stopping use one graph, because every step that was started must be stopped.
//! [`graph`] arranges steps in waves, once. [`machine`] decides which steps start and which may be
//! stopped. [`start`] and [`stop`] carry that out, and share the [`board`].

mod board;
mod context;
mod error;
mod graph;
mod hook;
mod isolated;
mod machine;
mod profile;
mod start;
mod step;
mod stop;

use std::fmt;
use std::time::Duration;

pub use context::{StartCx, StopCx};
pub use error::{AssembleError, StartError, StepAction, StepError, StepFailure};
use graph::Graph;
pub use hook::{StartHook, StartResult, Started, StopHook};
pub use profile::DeploymentProfile;
pub use step::Step;

use crate::coordinator::Shutdown;
use crate::phase::Phase;

/// The steps of a process: started in order, and stopped in reverse when the process ends.
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
/// To pass a value such as the pool to later steps, put it into a
/// [`OnceLock`](std::sync::OnceLock) that the steps share.
///
/// # When steps are stopped
///
/// Steps are stopped in a phase of their own, [`Lifecycle::PHASE`], which is the last one unless you
/// add another. By then work has drained, loops have ended, actors have stopped, and the tasks of
/// [`Phase::CLOSE_RESOURCES`] have run. Each step is a task of that phase, named `stop` and its id, so
/// it appears in the report and in "still waiting" lines. Unless configured, the timeout of the phase
/// is the sum of the longest timeout of each wave.
#[must_use = "a lifecycle does nothing until it is started"]
pub struct Lifecycle {
    parts: Parts,
}

/// Builds a [`Lifecycle`].
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

    /// Returns a builder without steps.
    pub fn builder() -> LifecycleBuilder {
        LifecycleBuilder::default()
    }

    /// Starts the steps, wave by wave, and registers their stops with the shutdown.
    ///
    /// The steps of a wave start concurrently. Each has its own timeout: when it elapses, the step's
    /// token fires, and a grace (200 ms) later its start is aborted. The process is not ready before
    /// all steps have started. Then this method calls [`Shutdown::mark_started`].
    ///
    /// If a step fails, panics or times out, the other starts of its wave are cancelled, and start-up
    /// is rolled back. First the loops end that steps have added through [`StartCx::shutdown`]; then
    /// the steps that have started are stopped in reverse, each within its own timeout. The error
    /// contains every failure, and the process does not become ready.
    ///
    /// If the shutdown begins during start-up, starts are cancelled as well. Then the shutdown stops
    /// the steps that have started, in its own phase, so that admitted work drains first. See
    /// [`StartError::is_shutdown`].
    ///
    /// Steps run on the runtime of the shutdown, or on the current one if the shutdown has none.
    ///
    /// # Errors
    ///
    /// If a step did not start, or the shutdown began. By then the steps that had started have been
    /// stopped. If there is no runtime, or the shutdown rejects the tasks (see
    /// [`Shutdown::add_task`]), no step was started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the starts that are in progress, or the stops during a rollback.
    /// Steps that are up by then are stopped when the shutdown runs.
    pub async fn start(self, shutdown: &Shutdown) -> Result<(), StartError> {
        // Boxed, because the future is large and becomes part of `main`.
        let started = Box::pin(start::start(self, shutdown)).await;
        if let Err(error) = &started
            && error.is_shutdown()
        {
            shutdown.note_refusal(error);
        }
        started
    }

    /// Returns the ids of the steps by wave, sorted by priority within a wave.
    pub fn waves(&self) -> impl Iterator<Item = Vec<&str>> {
        let Graph { ids, waves, .. } = &self.parts.graph;
        waves.iter().map(|wave| wave.iter().map(|&step| &*ids[step]).collect())
    }

    /// Returns the maximum time to start: the sum of the longest timeout of each wave.
    #[must_use]
    pub fn start_budget(&self) -> Duration {
        self.parts.graph.start_budget()
    }

    /// Returns the maximum time to stop: the sum of the longest timeout of each wave, plus 400 ms for
    /// each wave to abort stops that hang.
    #[must_use]
    pub fn stop_budget(&self) -> Duration {
        self.parts.graph.stop_budget(|_| true)
    }

    /// Returns warnings about probable mistakes. [`Lifecycle::start`] logs them.
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
    /// Sets where the process runs. The default is a single process.
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

    /// Starts and stops the steps one at a time. Within a wave the step with the highest priority
    /// starts first; steps of equal priority start in the order in which they were added.
    pub fn one_at_a_time(mut self) -> Self {
        self.one_at_a_time = true;
        self
    }

    /// Arranges the steps in waves.
    ///
    /// # Errors
    ///
    /// If two steps have the same id or provide the same capability, a step requires or depends on
    /// something that does not exist, steps wait for each other, a timeout is zero or longer than one
    /// year, or the profile forbids a step.
    pub fn build(self) -> Result<Lifecycle, AssembleError> {
        let Self { mut steps, profile, one_at_a_time } = self;
        let graph = Graph::assemble(&steps, one_at_a_time)?;
        let warnings = profile.check(&steps)?;
        let hooks = steps.iter_mut().map(Step::take_hook).collect();
        Ok(Lifecycle { parts: Parts { graph, hooks, profile, warnings } })
    }
}
