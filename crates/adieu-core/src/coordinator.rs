//! The shutdown itself, and the handles to it.
//!
//! [`machine`] decides what happens next, and [`driver`] carries it out. [`Shared`] is the state behind
//! every [`Shutdown`].

mod accounts;
mod await_error;
mod begin;
mod blocking;
mod checks;
mod completion;
mod cordon;
mod core;
mod declare;
mod declared;
mod drains;
mod driver;
mod engine;
mod exit;
mod extensions;
mod finish;
mod gates;
pub(crate) mod ladder;
mod lame_duck;
mod locks;
pub(crate) mod machine;
mod over_budget;
mod process;
mod progress;
mod progress_counts;
mod ready;
mod refusals;
mod run;
mod runtime_state;
mod shared;
mod signals;
#[cfg(all(feature = "systemd", unix))]
mod supervised;
mod task_handle;
mod too_late;
mod undrained;
mod unfinished;

use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use accounts::WorkSource;
pub use await_error::AwaitError;
pub use begin::ResumeError;
pub use checks::{CheckHandle, Promise};
pub use completion::Completion;
pub use declare::AddPhaseError;
pub use gates::Drain;
#[cfg(all(test, feature = "systemd", unix))]
pub(crate) use progress_counts::ProgressCounts;
pub(crate) use shared::Shared;
#[cfg(all(feature = "systemd", unix))]
pub(crate) use supervised::{SupervisorUpdates, SupervisorView};
pub use task_handle::TaskHandle;

use crate::background::OwnedLoops;
use crate::budget::BudgetCheck;
use crate::config::{Config, ConfigError};
use crate::deadline::Deadline;
use crate::phase::PhaseSpec;
use crate::plan::{Plan, PlanError};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::registry::Entry;
use crate::report::Report;
use crate::status::{Stage, Status};
use crate::task::{AddTaskError, Blocking, Job, TaskCx, TaskInfo, TaskResult, TaskSpec};

/// A coordinated shutdown: phases, the tasks in them, and one run that any number of tasks can await.
///
/// This is a handle: clones are cheap and refer to the same shutdown.
///
/// ```
/// use adieu_core::{Phase, PhaseSpec, Reason, Shutdown};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shutdown = Shutdown::new();
/// shutdown.add_phase(
///     PhaseSpec::new("flush-metrics")
///         .after(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE)
///         .timeout(Duration::from_secs(3)),
/// )?;
/// shutdown.add_task("flush-metrics", "push", async |cx| {
///     println!("{} s left, reason: {}", cx.remaining().as_secs(), cx.reason());
/// })?;
///
/// let report = shutdown.run(Reason::Unknown).await?;
/// assert!(report.is_clean());
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
///
/// # Which runtime
///
/// Tasks run on the tokio runtime that was current when the shutdown was created. If there was
/// none, they run on the one that was current when it began. The runtime must have timers
/// (`enable_time`). The driver of the shutdown runs there, too. On a multi-threaded runtime, an
/// additional thread drives the shutdown while all workers are blocked, so deadlines hold and lines
/// are logged. If there is no runtime, the shutdown builds one.
#[derive(Clone)]
pub struct Shutdown {
    shared: Arc<Shared>,
    /// The second owner of loops that are added through this handle.
    owner: Option<Arc<OwnedLoops>>,
}

/// A handle that does not keep the shutdown alive. Returned by [`Shutdown::downgrade`].
///
/// For adapters whose tasks the shutdown owns: a task with a [`Shutdown`] would keep its own owner alive.
#[derive(Clone)]
pub struct WeakShutdown {
    shared: Weak<Shared>,
    owner: Option<Arc<OwnedLoops>>,
}

// === impl WeakShutdown ===

impl WeakShutdown {
    /// Returns the shutdown, or `None` if its last handle has been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Shutdown> {
        let shared = self.shared.upgrade()?;
        Some(Shutdown { shared, owner: self.owner.clone() })
    }
}

impl std::fmt::Debug for WeakShutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WeakShutdown").field(&self.upgrade()).finish()
    }
}

// === impl Shutdown ===

impl Shutdown {
    /// Makes a shutdown with the built-in phases and the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::assemble(Config::new(), Plan::builder())
    }

    /// Makes a shutdown with this configuration.
    ///
    /// # Errors
    ///
    /// If the configured phases do not make a valid plan, or switches contradict each other.
    pub fn configured(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let plan = config.plan_builder()?;
        Ok(Self::assemble(config, plan))
    }

    fn assemble(config: Config, plan: crate::plan::PlanBuilder) -> Self {
        Self { shared: Arc::new(Shared::new(config, plan)), owner: None }
    }

    pub(crate) fn config(&self) -> &Config {
        self.shared.config()
    }

    // --- declaring ---

    /// Adds a phase.
    ///
    /// # Errors
    ///
    /// As [`PlanBuilder::add`](crate::PlanBuilder::add); also if the shutdown has begun.
    pub fn add_phase(&self, spec: PhaseSpec) -> Result<(), AddPhaseError> {
        self.shared.add_phase(spec)
    }

    /// Changes how long a phase may take. Possible until the phase has started.
    ///
    /// # Errors
    ///
    /// If there is no such phase, it has started, or the timeout is zero or longer than a year.
    pub fn set_phase_timeout(
        &self,
        phase: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<(), AddPhaseError> {
        self.shared.set_phase_timeout(phase.as_ref(), timeout)
    }

    /// Adds a task to a phase: an async function of a [`TaskCx`] that returns nothing or a result.
    ///
    /// The tasks of a phase run concurrently, in no order. The same name and the same function may be
    /// added several times, and each runs. While the shutdown runs, tasks can still be added to phases
    /// that have not started.
    ///
    /// # Errors
    ///
    /// If there is no such phase, it has started, the name is empty, or the timeout is zero. In strict
    /// mode, also if the worst case would then be longer than the platform allows.
    #[track_caller]
    pub fn add_task<F, Fut>(
        &self,
        phase: impl AsRef<str>,
        task: impl Into<TaskSpec>,
        f: F,
    ) -> Result<TaskHandle, AddTaskError>
    where
        F: FnOnce(TaskCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.add(phase.as_ref(), task.into(), |_| Box::new(f), false, Location::caller())
    }

    /// Adds a task that blocks. It runs on a thread of its own.
    ///
    /// When its time is up, its token fires. If it does not end, it is reported as abandoned, and its
    /// thread does not keep the process alive.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`].
    #[track_caller]
    pub fn add_blocking_task<F, R>(
        &self,
        phase: impl AsRef<str>,
        task: impl Into<TaskSpec>,
        f: F,
    ) -> Result<TaskHandle, AddTaskError>
    where
        F: FnOnce(TaskCx) -> R + Send + 'static,
        R: TaskResult,
    {
        let job = |spec: &TaskSpec| Box::new(Blocking { name: Arc::clone(&spec.name), f }) as _;
        self.add(phase.as_ref(), task.into(), job, true, Location::caller())
    }

    fn add(
        &self,
        phase: &str,
        spec: TaskSpec,
        job: impl FnOnce(&TaskSpec) -> Box<dyn Job>,
        blocking: bool,
        place: &'static Location<'static>,
    ) -> Result<TaskHandle, AddTaskError> {
        let job = job(&spec);
        let TaskSpec { name, timeout, describe, runs_on } = spec;
        let entry = Entry { name, timeout, describe, runs_on, blocking, place, job };
        let (phase, seq) = self.shared.add_task(phase, entry)?;
        Ok(TaskHandle { shared: Arc::downgrade(&self.shared), phase, seq })
    }

    /// Cancels the pending tasks of this name in this phase, and returns how many there were.
    ///
    /// It interrupts nothing: once the phase has started, none of its tasks is pending.
    ///
    /// # Errors
    ///
    /// If there is no such phase.
    pub fn cancel_tasks(&self, phase: impl AsRef<str>, name: &str) -> Result<usize, PlanError> {
        self.shared.cancel_named(phase.as_ref(), name)
    }

    /// Returns the tasks that have been added and neither started nor been cancelled, by phase.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.shared.core.lock().declared.pending_tasks()
    }

    /// Returns the plan as it is now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.shared.core.lock().declared.built_plan()
    }

    /// Compares the worst case of the phases that have tasks with the time that the platform allows.
    #[must_use]
    pub fn check_budget(&self) -> BudgetCheck {
        self.shared.core.lock().check_budget()
    }

    // --- running ---

    /// Runs the shutdown, once. Every caller, before, during and after the run, awaits the same report.
    ///
    /// The first reason counts. Dropping the returned future changes nothing: the shutdown continues.
    ///
    /// Work that the shutdown waits for must not await it: the handler of a request, other work inside a
    /// gate, or an actor would wait for itself until its time is up, and be reported as cut. There, begin
    /// the shutdown and drop the future: `drop(shutdown.run(reason))`. Tasks of the shutdown, its loops and
    /// its steps are recognised, and get an error.
    ///
    /// If the shutdown was aborted, or a task failed, the future returns a report, not an error. `Err`
    /// means that there is no report. So `run(..).await?` continues after an abort.
    /// [`Report::into_result`] returns an error for every report that is not clean:
    ///
    /// ```
    /// # use adieu_core::{Reason, Shutdown};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let shutdown = Shutdown::new();
    /// shutdown.run(Reason::Unknown).await?.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, reason: impl Into<Reason>) -> Completion {
        self.shared.begin(reason.into(), None);
        self.completed()
    }

    /// Runs the shutdown without the phases before `phase`.
    ///
    /// # Errors
    ///
    /// If there is no such phase. The shutdown has then not begun.
    pub fn run_from(
        &self,
        phase: impl AsRef<str>,
        reason: impl Into<Reason>,
    ) -> Result<Completion, PlanError> {
        let from = self.shared.phase_id(phase.as_ref())?;
        self.shared.begin(reason.into(), Some(from));
        Ok(self.completed())
    }

    /// Continues a shutdown that was aborted by a phase that does not recover. It runs `phase`, and every
    /// other phase that has not run and does not come before it.
    ///
    /// # Errors
    ///
    /// If there is no such phase, or the shutdown has not ended as aborted.
    pub fn resume_from(&self, phase: impl AsRef<str>) -> Result<Completion, ResumeError> {
        self.shared.resume(phase.as_ref())?;
        Ok(self.completed())
    }

    /// Waits until the shutdown is over. It does not begin the shutdown.
    pub fn completed(&self) -> Completion {
        Completion::new(&self.shared)
    }

    /// Waits until the shutdown begins, and returns its reason. Returns at once if it has begun.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn begun(&self) -> Reason {
        self.shared.progress.begun().cancelled().await;
        self.shared.reason().unwrap_or(Reason::Unknown)
    }

    /// Returns a token that fires when the shutdown begins, for libraries that take one.
    #[must_use]
    pub fn token(&self) -> tokio_util::sync::CancellationToken {
        // A child, so that a library that cancels it does not affect others.
        self.shared.progress.begun().child_token()
    }

    /// Brings the deadline nearer: the shutdown must be over within `left` from now.
    ///
    /// Running phases lose time by rank, the earlier ones first. If the deadline is sooner already, it
    /// stays. Before the shutdown has begun, this limits its duration.
    pub fn shorten(&self, left: Duration) {
        self.shared.shorten(left);
    }

    /// Returns the stage of the shutdown.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.shared.progress.stage()
    }

    /// Returns the reason of the shutdown; `None` before it has begun.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.shared.reason()
    }

    /// Returns when the shutdown must be over; `None` before it has begun.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.shared.deadline()
    }

    /// Returns the report; `None` before the shutdown is over.
    #[must_use]
    pub fn report(&self) -> Option<Arc<Report>> {
        self.shared.progress.report()
    }

    /// Returns the current state of the shutdown. Can be called from any thread.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns what happens at the end of a shutdown for this reason.
    #[must_use]
    pub fn policy(&self, reason: &Reason) -> Policy {
        self.shared.config().policies.of(reason)
    }

    /// Returns whether the termination of the actor system runs this shutdown.
    #[must_use]
    pub fn runs_by_actor_system_terminate(&self) -> bool {
        self.shared.config().triggers.actor_system_terminate
    }

    /// Returns whether this shutdown runs when the cluster removes this node.
    #[must_use]
    pub fn runs_when_down(&self) -> bool {
        self.shared.config().triggers.downed
    }

    // --- for adapters ---

    /// Returns a handle that does not keep the shutdown alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakShutdown {
        WeakShutdown { shared: Arc::downgrade(&self.shared), owner: self.owner.clone() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn owner(&self) -> Option<&Arc<OwnedLoops>> {
        self.owner.as_ref()
    }

    /// Returns a handle that also adds its loops to `owner`, which may end them before the shutdown does.
    pub(crate) fn owned_by(&self, owner: &Arc<OwnedLoops>) -> Self {
        Self { shared: Arc::clone(&self.shared), owner: Some(Arc::clone(owner)) }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shutdown").field("stage", &self.stage()).finish_non_exhaustive()
    }
}
