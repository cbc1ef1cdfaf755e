//! The state behind every handle: what has been declared, what has been asked for, how far it is.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::driver;
use super::ladder::{Ladder, Rung};
use super::run::{Beginning, Run, Undescribed};
use crate::budget::{Budget, BudgetCheck};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::journal::Journal;
use crate::outcome::Ending;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::{PhaseId, Plan, PlanBuilder, PlanError};
use crate::reason::Reason;
use crate::registry::{Entry, Registry, Started};
use crate::report::Report;
use crate::signals::Listener;
use crate::status::{Stage, Status};
use crate::sync::lock;
use crate::task::{AddTaskError, TaskInfo};
use crate::time::{Instant, Short, now};
use crate::watchdog::Watchdog;

/// Why an aborted shutdown could not be resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// There is no such phase.
    #[error("failed to resume the shutdown")]
    UnknownPhase(#[source] PlanError),
    /// Only a shutdown that was aborted can be resumed.
    #[error("failed to resume the shutdown: it was not aborted")]
    NotAborted,
}

pub(crate) struct Shared {
    pub(super) config: Config,
    pub(super) core: Mutex<Core>,
    state: watch::Sender<State>,
    pub(super) wishes: watch::Sender<Wishes>,
    pub(super) ladder: Mutex<Ladder>,
    pub(super) listener: Mutex<Option<Listener>>,
    pub(super) guards: Mutex<Vec<Box<dyn Any + Send>>>,
    pub(super) watchdog: Watchdog,
    pub(super) owns_process: AtomicBool,
    pub(super) journal: Journal,
}

/// What has been declared, and the run. Behind one lock, because a phase must be closed to new
/// tasks in the same instant in which its tasks are taken.
pub(super) struct Core {
    plan: PlanBuilder,
    pub(super) registry: Registry,
    pub(super) budget: Budget,
    warned: bool,
    pub(super) home: Option<Handle>,
    pub(super) run: Option<Run>,
}

/// How far it is, and how it ended: judged together, so kept together.
pub(super) struct State {
    stage: Stage,
    report: Option<Arc<Report>>,
    /// The driver is gone and there will be no report.
    lost: bool,
}

/// What has been asked for while it runs. Each only ever rises, so nothing asked for is lost
/// however often it is asked and however late the driver looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) rung: Rung,
    pub(super) deadline: Option<Instant>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(config: Config, plan: PlanBuilder) -> Self {
        let mut registry = Registry::default();
        registry.grow(plan.len());
        let kill_after = match config.kill_after {
            crate::config::KillAfter::After(after) => Some(after),
            // What the platform allows counts from its signal: without signals there is none.
            crate::config::KillAfter::Detect | crate::config::KillAfter::Never => None,
        };
        let budget = Budget { kill_after, reserve: config.reserve };
        let home = Handle::try_current().ok();
        let core = Core { plan, registry, budget, warned: false, home, run: None };
        let state = State { stage: Stage::Up, report: None, lost: false };
        Self {
            config,
            core: Mutex::new(core),
            state: watch::Sender::new(state),
            wishes: watch::Sender::new(Wishes { rung: Rung::Graceful, deadline: None }),
            ladder: Mutex::default(),
            listener: Mutex::default(),
            guards: Mutex::default(),
            watchdog: Watchdog::new(),
            owns_process: AtomicBool::new(false),
            journal: Journal::default(),
        }
    }

    /// Tells one shutdown from another while it lives.
    pub(super) fn key(shared: &Arc<Self>) -> usize {
        Arc::as_ptr(shared).addr()
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    // --- declaring ---

    pub(super) fn add_phase(&self, spec: PhaseSpec) -> Result<(), PlanError> {
        let mut core = lock(&self.core);
        if core.run.is_some() {
            return Err(PlanError::TooLate { phase: spec.name });
        }
        core.plan.add(spec)?;
        let phases = core.plan.len();
        core.registry.grow(phases);
        Ok(())
    }

    pub(super) fn set_phase_timeout(
        &self,
        phase: &str,
        timeout: Duration,
    ) -> Result<(), PlanError> {
        let mut core = lock(&self.core);
        let at = core.plan.position(phase)?;
        if core.registry.has_started(PhaseId(at)) {
            return Err(PlanError::TooLate { phase: Phase::new(phase) });
        }
        core.plan.timeout(phase, timeout)?;
        self.warn_if_over_budget(&mut core);
        Ok(())
    }

    pub(super) fn add_task(
        &self,
        phase: &str,
        entry: Entry,
    ) -> Result<(PhaseId, u64), AddTaskError> {
        if entry.name.trim().is_empty() {
            return Err(AddTaskError::EmptyName { phase: Phase::new(phase) });
        }
        let task = Arc::clone(&entry.name);
        let mut core = lock(&self.core);
        let id = match core.plan.position(phase) {
            Ok(at) => PhaseId(at),
            Err(source) => return Err(AddTaskError::UnknownPhase { task, source }),
        };
        if entry.timeout == Some(Duration::ZERO) {
            return Err(AddTaskError::ZeroTimeout { task, phase: Phase::new(phase) });
        }
        // Only the first task of a phase changes the worst case.
        let first = core.registry.count(id) == 0;
        match core.registry.add(id, entry) {
            Ok(seq) => {
                if first && core.run.is_none() {
                    self.check_new_task(&mut core, id, seq, task)?;
                }
                Ok((id, seq))
            }
            Err((entry, Started)) => {
                drop(core);
                drop(entry); // The user's code may run in its drop: not under our lock.
                Err(AddTaskError::TooLate { task, phase: Phase::new(phase) })
            }
        }
    }

    fn check_new_task(
        &self,
        core: &mut Core,
        id: PhaseId,
        seq: u64,
        task: Arc<str>,
    ) -> Result<(), AddTaskError> {
        self.warn_if_over_budget(core);
        let check = core.check_budget();
        if self.config.strict && !check.fits() {
            core.registry.cancel(id, seq);
            let (phase, check) = (core.plan.name(id.0).clone(), Box::new(check));
            return Err(AddTaskError::OverBudget { task, phase, check });
        }
        Ok(())
    }

    pub(crate) fn cancel(&self, phase: PhaseId, seq: u64) -> bool {
        let cancelled = lock(&self.core).registry.cancel(phase, seq);
        cancelled.is_some() // And dropped here, outside the lock.
    }

    pub(super) fn tasks(&self) -> Vec<TaskInfo> {
        let core = lock(&self.core);
        let phases = (0..core.plan.len()).map(PhaseId);
        phases
            .flat_map(|id| core.registry.pending(id).map(move |entry| (id, entry)))
            .map(|(id, entry)| TaskInfo {
                phase: core.plan.name(id.0).clone(),
                name: Arc::clone(&entry.name),
                timeout: entry.timeout,
                blocking: entry.blocking,
                added_at: format!("{}:{}", entry.place.file(), entry.place.line()),
            })
            .collect()
    }

    pub(super) fn plan(&self) -> Plan {
        lock(&self.core).plan.build()
    }

    pub(super) fn phase_id(&self, phase: &str) -> Result<PhaseId, PlanError> {
        lock(&self.core).plan.position(phase).map(PhaseId)
    }

    pub(super) fn check_budget(&self) -> BudgetCheck {
        lock(&self.core).check_budget()
    }

    pub(super) fn warn_if_over_budget(&self, core: &mut Core) {
        if core.warned || core.budget.kill_after.is_none() {
            return;
        }
        let check = core.check_budget();
        if !check.fits() && !self.config.strict {
            core.warned = true;
            self.journal.over_budget(&check);
        }
    }

    // --- running ---

    /// Begins the shutdown if nobody has.
    pub(super) fn begin(self: &Arc<Self>, reason: Reason, from: Option<PhaseId>) {
        let now = now();
        let mut core = lock(&self.core);
        if core.run.is_some() {
            return;
        }
        let plan = core.plan.build();
        let check = core.check_budget();
        let mut limits = core.budget.begin(now, &plan);
        if let Some(deadline) = self.wishes.borrow().deadline {
            limits.deadline = limits.deadline.min(deadline);
        }
        let left = limits.deadline.saturating_duration_since(now);
        let policy = self.config.policies.of(&reason);
        let budget = core.budget;
        let beginning = Beginning { reason: reason.clone(), from, plan, budget, limits, policy };
        core.run = Some(Run::new(now, beginning));
        let home = core.home.clone();
        drop(core);

        self.watchdog.arm(left);
        if policy.exit_process
            && let Err(error) = self.start_watchdog()
        {
            self.journal.failed(&format!("the process will not be ended: {error}"));
        }
        self.state.send_modify(|state| state.stage = Stage::ShuttingDown);
        driver::start(self, home, driver::Beginning::Fresh);
        let phases = check.critical_path.phases.len();
        let worst_case = Short(check.critical_path.worst_case);
        self.journal.initiated(&reason, left, &format!("{phases} phases, worst case {worst_case}"));
    }

    pub(super) fn resume(self: &Arc<Self>, phase: &str) -> Result<(), ResumeError> {
        let from = self.phase_id(phase).map_err(ResumeError::UnknownPhase)?;
        let mut resumed = false;
        self.state.send_modify(|state| {
            let aborted = |report: &Arc<Report>| matches!(report.outcome, Ending::Aborted { .. });
            if state.stage == Stage::Over && state.report.as_ref().is_some_and(aborted) {
                state.stage = Stage::ShuttingDown;
                resumed = true;
            }
        });
        if !resumed {
            return Err(ResumeError::NotAborted);
        }
        // What was wished of the aborted run has been granted.
        self.wishes.send_modify(|wishes| wishes.deadline = None);
        let now = now();
        let mut core = lock(&self.core);
        let home = core.home.clone();
        if let Some(run) = &mut core.run {
            let limits = run.renew(now);
            drop(core);
            self.watchdog.arm(limits.deadline.saturating_duration_since(now));
            driver::start(self, home, driver::Beginning::Resumed { from, limits });
        }
        Ok(())
    }

    pub(super) fn shorten(&self, left: Duration) {
        let Some(deadline) = now().checked_add(left) else {
            return;
        };
        if self.stage() == Stage::ShuttingDown {
            self.watchdog.arm(left);
        }
        self.wishes.send_if_modified(|wishes| {
            let sooner = wishes.deadline.is_none_or(|at| deadline < at);
            if sooner {
                wishes.deadline = Some(deadline);
            }
            sooner
        });
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn wishes(&self) -> watch::Receiver<Wishes> {
        self.wishes.subscribe()
    }

    pub(super) async fn begun(&self) -> Reason {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| state.stage > Stage::Up).await;
        // The sender is `self`, so the wait cannot have failed.
        self.reason().unwrap_or(Reason::Unknown)
    }

    pub(super) fn stage(&self) -> Stage {
        self.state.borrow().stage
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        lock(&self.core).run.as_ref().map(|run| run.cx.reason.clone())
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        lock(&self.core).run.as_ref().map(|run| Deadline::at(run.cx.deadline.get()))
    }

    pub(super) fn report(&self) -> Option<Arc<Report>> {
        self.state.borrow().report()
    }

    pub(super) fn status(&self) -> Status {
        let stage = self.stage();
        // What describes itself is asked outside the lock: it is the user's code that answers.
        let status = lock(&self.core).run.as_ref().map(|run| run.status(stage, now()));
        status.map_or_else(|| Status::before(stage), Undescribed::describe)
    }

    // --- for the driver ---

    /// Looks at the run, and at what has been declared, under the lock. `look` must not call the
    /// user's code.
    pub(super) fn with_run<T>(
        &self,
        look: impl FnOnce(&mut Run, &mut Registry, &PlanBuilder) -> T,
    ) -> Option<T> {
        let mut core = lock(&self.core);
        let Core { plan, registry, run, .. } = &mut *core;
        run.as_mut().map(|run| look(run, registry, plan))
    }

    /// All phases are over: everybody who waits is told.
    pub(super) fn finish(&self, report: Report) {
        self.journal.complete(&report);
        let exit_code = report.exit_code;
        if self.owns_process.load(Ordering::Relaxed) {
            // The phases are over; the process must be, too, before long.
            self.watchdog.arm(self.config.reserve);
        } else {
            self.watchdog.disarm();
        }
        self.state.send_modify(|state| {
            state.stage = Stage::Over;
            state.report = Some(Arc::new(report));
        });
        let exits = lock(&self.core).run.as_ref().is_some_and(|run| run.policy.exit_process);
        if exits {
            self.watchdog.exit(exit_code);
        }
    }

    /// The driver was dropped before the end.
    pub(super) fn lose(&self) {
        self.state.send_if_modified(|state| {
            state.lost = state.stage == Stage::ShuttingDown;
            state.lost
        });
    }
}

// === impl Core ===

impl Core {
    pub(super) fn check_budget(&self) -> BudgetCheck {
        let plan = self.plan.build();
        let has_tasks =
            |phase: &Phase| plan.id(phase.as_str()).is_some_and(|id| self.registry.count(id) > 0);
        self.budget.check(&plan, has_tasks)
    }
}

// === impl State ===

impl State {
    pub(super) fn is_settled(&self) -> bool {
        self.stage == Stage::Over || self.lost
    }

    pub(super) fn report(&self) -> Option<Arc<Report>> {
        self.report.clone().filter(|_| self.stage == Stage::Over)
    }
}
