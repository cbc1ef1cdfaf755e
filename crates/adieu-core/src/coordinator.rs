//! The shutdown itself: what everybody holds a handle to.
//!
//! [`Shutdown`] is that handle. [`machine`] decides, [`driver`] does; [`Shared`] is the state that
//! both and every handle look at.

mod checks;
mod completion;
mod declare;
mod driver;
mod extensions;
mod gates;
mod home;
pub(crate) mod ladder;
mod lame_duck;
pub(crate) mod machine;
mod moves;
mod over_budget;
mod process;
mod ready;
mod refusals;
mod run;
mod shared;
#[cfg(all(feature = "systemd", unix))]
mod supervised;
mod task_handle;

use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use checks::{CheckHandle, Promise};
pub use completion::{AwaitError, Completion};
pub use declare::AddPhaseError;
pub use gates::Drain;
#[cfg(all(test, feature = "systemd", unix))]
pub(crate) use moves::Moves;
pub use shared::ResumeError;
pub(crate) use shared::Shared;
#[cfg(all(feature = "systemd", unix))]
pub(crate) use supervised::{Lookout, Seen};
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
use crate::rung::Rung;
use crate::signals::{Signal, SignalError};
use crate::status::{Stage, Status};
use crate::task::{AddTaskError, Blocking, Job, TaskCx, TaskInfo, TaskResult, TaskSpec};

/// A coordinated shutdown: phases, the tasks in them, and one run that everybody can await.
///
/// This is a handle: clones are cheap and stand for the same shutdown.
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
///     println!("{} left because of {}", cx.remaining().as_secs(), cx.reason());
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
/// Tasks run on the tokio runtime in which the shutdown was made, or else begun; it must have
/// timers (`enable_time`). The shutdown drives itself from there. On a multi-threaded runtime a
/// thread stands in for it, so deadlines hold and lines are said when all workers are blocked.
/// Where there is no runtime at all, it brings its own.
#[derive(Clone)]
pub struct Shutdown {
    shared: Arc<Shared>,
    /// Whom loops belong to that are added through this handle, besides the shutdown.
    owner: Option<Arc<OwnedLoops>>,
}

/// A handle that does not keep the shutdown alive. Returned by [`Shutdown::downgrade`].
///
/// For adapters whose tasks the shutdown owns: a task that held a [`Shutdown`] would keep its own
/// owner alive.
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
    /// A shutdown with the built-in phases and the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::assemble(Config::new(), Plan::builder())
    }

    /// A shutdown as configured.
    ///
    /// # Errors
    ///
    /// If the configured phases do not make a plan, or switches contradict each other.
    pub fn configured(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let plan = config.plan_builder()?;
        Ok(Self::assemble(config, plan))
    }

    fn assemble(config: Config, plan: crate::plan::PlanBuilder) -> Self {
        Self { shared: Arc::new(Shared::new(config, plan)), owner: None }
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
    /// If there is no such phase, it has started, or the timeout is zero or endless.
    pub fn set_phase_timeout(
        &self,
        phase: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<(), AddPhaseError> {
        self.shared.set_phase_timeout(phase.as_ref(), timeout)
    }

    /// Adds a task to a phase: an async function of a [`TaskCx`] that returns nothing or a result.
    ///
    /// The tasks of a phase run side by side, in no order. The same name and the same function may
    /// be added several times, and each runs. While the shutdown runs, tasks can still be added to
    /// phases that have not started.
    ///
    /// # Errors
    ///
    /// If there is no such phase, it has started, the name is empty or the timeout zero; in strict
    /// mode also if the worst case would then exceed what the platform allows.
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
    /// When its time is up its token fires. If it does not end it is reported as abandoned, and
    /// its thread does not keep the process alive.
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

    /// Takes back the pending tasks of this name in this phase, and returns how many there were.
    ///
    /// It interrupts nothing: once the phase has started, no task of it is pending.
    ///
    /// # Errors
    ///
    /// If there is no such phase.
    pub fn cancel_tasks(&self, phase: impl AsRef<str>, name: &str) -> Result<usize, PlanError> {
        self.shared.cancel_named(phase.as_ref(), name)
    }

    /// The tasks that have been added and neither started nor been cancelled, by phase.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.shared.tasks()
    }

    /// The plan as it is now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.shared.plan()
    }

    /// Compares the worst case of the phases that have tasks with what the platform allows.
    #[must_use]
    pub fn check_budget(&self) -> BudgetCheck {
        self.shared.check_budget()
    }

    // --- running ---

    /// Runs the shutdown, once. Every caller, before, during and after, awaits the same report.
    ///
    /// The first reason wins. Dropping the returned future changes nothing: the shutdown goes on.
    ///
    /// A shutdown that was aborted, or in which a task failed, is a report, not an error: `Err` says
    /// that there is no report. So `run(..).await?` goes on after an abort.
    /// [`Report::into_result`] makes an error of everything that is not clean:
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

    /// Runs the shutdown without the phases that come before `phase`.
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

    /// Goes on after the shutdown was aborted by a phase that does not recover: `phase` and all
    /// that does not come before it, as far as it has not run.
    ///
    /// # Errors
    ///
    /// If there is no such phase, or the shutdown has not ended as aborted.
    pub fn resume_from(&self, phase: impl AsRef<str>) -> Result<Completion, ResumeError> {
        self.shared.resume(phase.as_ref())?;
        Ok(self.completed())
    }

    /// Waits until the shutdown is over, whoever begins it.
    pub fn completed(&self) -> Completion {
        Completion::new(&self.shared)
    }

    /// Waits until the shutdown begins, and says why. Returns at once if it has begun.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn begun(&self) -> Reason {
        self.shared.begun().await
    }

    /// A token that fires when the shutdown begins, for libraries that take one.
    #[must_use]
    pub fn token(&self) -> tokio_util::sync::CancellationToken {
        // A child: whoever cancels it has not begun a shutdown.
        self.shared.begun.child_token()
    }

    /// Brings the deadline nearer: the shutdown must be over within `left` from now.
    ///
    /// Phases that run give way by rank, the earlier ones first. A deadline that is sooner already
    /// stays. Before the shutdown has begun, this limits how long it may take from when it begins.
    pub fn shorten(&self, left: Duration) {
        self.shared.shorten(left);
    }

    /// How far the shutdown is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.shared.stage()
    }

    /// Why the shutdown runs or ran; `None` before it has begun.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.shared.reason()
    }

    /// When the shutdown must be over; `None` before it has begun.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.shared.deadline()
    }

    /// The report; `None` before the shutdown is over.
    #[must_use]
    pub fn report(&self) -> Option<Arc<Report>> {
        self.shared.report()
    }

    /// What the shutdown is doing right now. Safe to ask for from any thread.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// What happens at the end of a shutdown for this reason.
    #[must_use]
    pub fn policy(&self, reason: &Reason) -> Policy {
        self.shared.config().policies.of(reason)
    }

    /// Whether terminating the actor system is to run this shutdown.
    #[must_use]
    pub fn runs_by_actor_system_terminate(&self) -> bool {
        self.shared.config().triggers.actor_system_terminate
    }

    /// Whether being put out of the cluster is to run this shutdown.
    #[must_use]
    pub fn runs_when_down(&self) -> bool {
        self.shared.config().triggers.downed
    }

    // --- the process ---

    /// Runs the shutdown on SIGTERM and SIGINT. See [`Shutdown::install_signals_for`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn install_signals(&self) -> Result<(), SignalError> {
        self.install_signals_for([Signal::TERM, Signal::INT])
    }

    /// Runs the shutdown when one of these signals comes, and climbs the ladder when they are
    /// repeated; see [`Rung`].
    ///
    /// Signals are heard on a thread of their own, also when the runtime is wedged; the last rung
    /// ends the process from there. When the shutdown is over and the process lives on, one signal
    /// ends it. From here on the deadline is what the platform allows; under systemd this asks it
    /// how long that is, and blocks for a second at most.
    /// Installing the same signals again does nothing.
    ///
    /// # Errors
    ///
    /// If a signal cannot be caught, other signals are installed already, or the system refuses;
    /// in strict mode also if the worst case exceeds what the platform allows.
    pub fn install_signals_for(
        &self,
        signals: impl IntoIterator<Item = Signal>,
    ) -> Result<(), SignalError> {
        self.shared.install_signals(signals.into_iter().collect())
    }

    /// Stops listening to the signals, and restores what there was before: listeners of the
    /// application, which may also have come since, or else the default action, which for most
    /// signals is to end the process. As process 1 it exits with 128 and the signal's number.
    ///
    /// # Errors
    ///
    /// If the system refuses to bring the default action back.
    pub fn remove_signals(&self) -> std::io::Result<()> {
        self.shared.remove_signals()
    }

    /// Does what the signal would do, and says how urgent it is now; `None` if it is the echo of
    /// the one before.
    ///
    /// For signals that arrive by other ways. It never ends the process: on [`Rung::Exit`] that is
    /// up to the caller.
    #[must_use = "on the last rung it is the caller who ends the process"]
    pub fn receive(&self, signal: Signal) -> Option<Rung> {
        self.shared.receive(signal, None)
    }

    /// Does what SIGTERM would do, for a request that came by other means, and logs those. It never
    /// ends the process. For adapters.
    #[doc(hidden)]
    pub fn receive_request(&self, via: &'static str) {
        let _ = self.shared.receive(Signal::TERM, Some(via));
    }

    /// Starts a thread that ends the process at the deadline of the shutdown if it is then still
    /// not over. [`main`](crate::main) does so by itself.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start_watchdog(&self) -> std::io::Result<()> {
        self.shared.start_watchdog()
    }

    /// Keeps a guard, such as one that flushes logs when it is dropped, until the process ends.
    ///
    /// [`main`](crate::main) drops the guards last of all, the latest first, within the reserve.
    /// Without it they are dropped with the last handle to this shutdown.
    pub fn keep_until_exit(&self, guard: impl Send + 'static) {
        self.shared.keep_until_exit(Box::new(guard));
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

    /// Returns a handle that also adds its loops to `owner`, which may have to end them earlier.
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
