//! The state behind every handle: what has been declared, what has been asked for, how far it is.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::driver;
use super::ladder::{Ladder, Rung};
use super::run::{Beginning, Run, Undescribed};
use crate::budget::{Budget, BudgetCheck};
use crate::config::{Config, KillAfter};
use crate::deadline::Deadline;
use crate::journal::{Journal, Line};
use crate::outcome::Ending;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::{LONGEST, PhaseId, Plan, PlanBuilder, PlanError};
use crate::reason::Reason;
use crate::registry::{Entry, Registry};
use crate::report::Report;
use crate::signals::Listener;
use crate::status::{Stage, Status};
use crate::sync::lock;
use crate::task::{AddTaskError, TaskInfo};
use crate::time::{Instant, Short, now};
use crate::watchdog::{LAST_WORDS, Watchdog};

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
    wishes: Mutex<Wishes>,
    /// Tells the driver that there is something new: a wish, or the end.
    pub(super) nudge: Notify,
    pub(super) ladder: Mutex<Ladder>,
    pub(super) listener: Mutex<Option<Listener>>,
    pub(super) guards: Mutex<Vec<Box<dyn Any + Send>>>,
    pub(super) watchdog: Watchdog,
    pub(super) owns_process: AtomicBool,
    pub(super) journal: Journal,
    /// Fires when the shutdown begins.
    pub(super) begun: CancellationToken,
}

/// What has been declared, and the run. Behind one lock, because a phase must be closed to new
/// tasks in the same instant in which its tasks are taken.
pub(super) struct Core {
    plan: PlanBuilder,
    pub(super) registry: Registry,
    pub(super) budget: Budget,
    /// The plan as built, until it changes.
    built: Option<Plan>,
    /// How long the worst case was when a warning was last given.
    warned_of: Duration,
    /// What the deadline was shortened to before there was one.
    limit: Option<Duration>,
    pub(super) home: Option<Handle>,
    pub(super) run: Option<Run>,
}

/// How far it is, and how it ended: judged together, so kept together.
pub(super) struct State {
    stage: Stage,
    report: Option<Arc<Report>>,
    /// How often it has been resumed.
    generation: u64,
    /// The driver is gone and there will be no report.
    lost: bool,
}

/// A task that was added, and the figures if the worst case is now too long.
struct Added {
    phase: PhaseId,
    seq: u64,
    over: Option<BudgetCheck>,
}

/// A task that was not added, to be dropped outside the lock.
struct Refused {
    entry: Option<Entry>,
    why: Refusal,
}

/// Why a task was not added.
enum Refusal {
    EmptyName,
    UnknownPhase(PlanError),
    ZeroTimeout,
    EndlessTimeout,
    TooLate,
    OverBudget(Box<BudgetCheck>),
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
            KillAfter::After(after) => Some(after),
            // What the platform allows counts from its signal: without signals there is none.
            KillAfter::Detect | KillAfter::Never => None,
        };
        let budget = Budget { kill_after, reserve: config.reserve };
        let home = Handle::try_current().ok();
        let core = Core {
            plan,
            registry,
            budget,
            built: None,
            warned_of: Duration::ZERO,
            limit: None,
            home,
            run: None,
        };
        let state = State { stage: Stage::Up, report: None, generation: 0, lost: false };
        Self {
            config,
            core: Mutex::new(core),
            state: watch::Sender::new(state),
            wishes: Mutex::new(Wishes::default()),
            nudge: Notify::new(),
            ladder: Mutex::default(),
            listener: Mutex::default(),
            guards: Mutex::default(),
            watchdog: Watchdog::new(),
            owns_process: AtomicBool::new(false),
            journal: Journal::default(),
            begun: CancellationToken::new(),
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
        let name = spec.name.clone();
        self.change_plan(name, |core| {
            if core.run.is_some() {
                return Err(PlanError::TooLate { phase: spec.name });
            }
            core.plan.add(spec)?;
            core.registry.grow(core.plan.len());
            Ok(())
        })
    }

    pub(super) fn set_phase_timeout(
        &self,
        phase: &str,
        timeout: Duration,
    ) -> Result<(), PlanError> {
        self.change_plan(Phase::new(phase), |core| {
            let at = core.plan.position(phase)?;
            if core.is_too_late(PhaseId(at)) {
                return Err(PlanError::TooLate { phase: Phase::new(phase) });
            }
            core.plan.timeout(phase, timeout)
        })
    }

    /// Changes the plan, and takes the change back if strictness forbids it.
    fn change_plan(
        &self,
        phase: Phase,
        change: impl FnOnce(&mut Core) -> Result<(), PlanError>,
    ) -> Result<(), PlanError> {
        let mut core = lock(&self.core);
        let before = self.config.strict.then(|| core.plan.clone());
        change(&mut core)?;
        core.built = None;
        let over = core.over_budget();
        if let (Some(before), Some(check)) = (before, &over) {
            core.plan = before;
            core.built = None;
            return Err(PlanError::OverBudget { phase, check: Box::new(check.clone()) });
        }
        drop(core);
        self.warn_of(over);
        Ok(())
    }

    pub(super) fn add_task(
        &self,
        phase: &str,
        entry: Entry,
    ) -> Result<(PhaseId, u64), AddTaskError> {
        let task = Arc::clone(&entry.name);
        match self.try_add_task(phase, entry) {
            Ok(Added { phase, seq, over }) => {
                self.warn_of(over);
                Ok((phase, seq))
            }
            Err(refused) => {
                let Refused { entry, why } = *refused;
                drop(entry); // The user's code may run in its drop: not under our lock.
                let phase = Phase::new(phase);
                Err(match why {
                    Refusal::EmptyName => AddTaskError::EmptyName { phase },
                    Refusal::UnknownPhase(problem) => AddTaskError::UnknownPhase { task, problem },
                    Refusal::ZeroTimeout => AddTaskError::ZeroTimeout { task, phase },
                    Refusal::EndlessTimeout => AddTaskError::EndlessTimeout { task, phase },
                    Refusal::TooLate => AddTaskError::TooLate { task, phase },
                    Refusal::OverBudget(check) => AddTaskError::OverBudget { task, phase, check },
                })
            }
        }
    }

    /// Adds a task, or gives it back; and says if the worst case is now too long.
    fn try_add_task(&self, phase: &str, entry: Entry) -> Result<Added, Box<Refused>> {
        if entry.name.trim().is_empty() {
            return Refused::because(Some(entry), Refusal::EmptyName);
        }
        match entry.timeout {
            Some(Duration::ZERO) => return Refused::because(Some(entry), Refusal::ZeroTimeout),
            Some(timeout) if timeout > LONGEST => {
                return Refused::because(Some(entry), Refusal::EndlessTimeout);
            }
            Some(_) | None => {}
        }
        let mut core = lock(&self.core);
        let id = match core.plan.position(phase) {
            Ok(at) => PhaseId(at),
            Err(problem) => return Refused::because(Some(entry), Refusal::UnknownPhase(problem)),
        };
        if core.is_too_late(id) {
            return Refused::because(Some(entry), Refusal::TooLate);
        }
        // Only the first task of a phase changes the worst case.
        let first = core.registry.count(id) == 0;
        let seq = core.registry.add(id, entry);
        let over = if first { core.over_budget() } else { None };
        match over {
            Some(check) if self.config.strict => {
                let entry = core.registry.cancel(id, seq);
                Refused::because(entry, Refusal::OverBudget(Box::new(check)))
            }
            over => Ok(Added { phase: id, seq, over }),
        }
    }

    /// Takes a task back while it is pending, and marks it as taken back in the same instant.
    pub(crate) fn cancel(&self, phase: PhaseId, seq: u64, cancelled: &AtomicBool) {
        let mut core = lock(&self.core);
        let entry = core.registry.cancel(phase, seq);
        if entry.is_some() {
            cancelled.store(true, Ordering::Relaxed);
        }
        drop(core);
        drop(entry); // Not under the lock.
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
        lock(&self.core).built_plan()
    }

    pub(super) fn phase_id(&self, phase: &str) -> Result<PhaseId, PlanError> {
        lock(&self.core).plan.position(phase).map(PhaseId)
    }

    pub(super) fn check_budget(&self) -> BudgetCheck {
        lock(&self.core).check_budget()
    }

    /// The runtime that tasks run on, if one is known.
    pub(super) fn home(&self) -> Option<Handle> {
        lock(&self.core).home.clone()
    }

    /// Warns that the worst case is too long, once for each time that it grows.
    pub(super) fn warn_of(&self, over: Option<BudgetCheck>) {
        let Some(check) = over.filter(|_| !self.config.strict) else { return };
        let needed = check.needed();
        let grown = std::mem::replace(&mut lock(&self.core).warned_of, needed) < needed;
        if grown {
            self.journal.tell(Line::OverBudget { check: check.to_string() });
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
        let check = core.check_budget();
        let plan = core.built_plan();
        let budget = core.budget_for(&reason, &self.config);
        let mut limits = budget.begin(now, &plan);
        if let Some(limit) = core.limit {
            limits.shorten(now, now + limit);
        }
        let left = limits.deadline.saturating_duration_since(now);
        let policy = self.config.policies.of(&reason);
        let beginning = Beginning { reason: reason.clone(), from, plan, budget, limits, policy };
        core.run = Some(Run::new(now, beginning));
        let home = core.home.clone();
        drop(core);

        self.watchdog.arm(left);
        let phases = check.critical_path.phases.len();
        let worst_case = Short(check.critical_path.worst_case);
        self.journal.listen_here();
        self.journal.note(Line::Initiated {
            reason: reason.to_string(),
            deadline: left,
            plan: format!("{phases} phases, worst case {worst_case}"),
        });
        if policy.exit_process
            && let Err(error) = self.start_watchdog()
        {
            let what = format!("the process will not be ended: {error}");
            self.journal.note(Line::Failed { what });
        }
        self.state.send_modify(|state| state.stage = Stage::ShuttingDown);
        self.begun.cancel();
        driver::start(self, home, driver::Beginning::Fresh);
    }

    pub(super) fn resume(self: &Arc<Self>, phase: &str) -> Result<(), ResumeError> {
        let from = self.phase_id(phase).map_err(ResumeError::UnknownPhase)?;
        let resumed = self.state.send_if_modified(|state| {
            let aborted = |report: &Arc<Report>| matches!(report.outcome, Ending::Aborted { .. });
            let can = state.stage == Stage::Over && state.report.as_ref().is_some_and(aborted);
            if can {
                state.stage = Stage::ShuttingDown;
                state.generation += 1;
            }
            can
        });
        if !resumed {
            return Err(ResumeError::NotAborted);
        }
        // What was wished of the aborted run has been granted.
        self.wish(|wishes| wishes.deadline = None);
        let now = now();
        let mut core = lock(&self.core);
        let home = core.home.clone();
        if let Some(run) = &mut core.run {
            let limits = run.renew(now);
            drop(core);
            self.watchdog.disarm();
            self.watchdog.arm(limits.deadline.saturating_duration_since(now));
            driver::start(self, home, driver::Beginning::Resumed { from, limits });
        }
        Ok(())
    }

    pub(super) fn shorten(&self, left: Duration) {
        let Some(deadline) = now().checked_add(left) else { return };
        let mut core = lock(&self.core);
        if core.run.is_none() {
            // It counts from when the shutdown begins.
            core.limit = Some(core.limit.map_or(left, |limit| limit.min(left)));
            return;
        }
        drop(core);
        if self.stage() == Stage::ShuttingDown {
            self.watchdog.arm(left);
        }
        self.wish(|wishes| {
            wishes.deadline = Some(wishes.deadline.map_or(deadline, |at| at.min(deadline)));
        });
    }

    /// Asks the driver for something, and makes it look.
    pub(super) fn wish(&self, wish: impl FnOnce(&mut Wishes)) {
        wish(&mut lock(&self.wishes));
        self.nudge.notify_one();
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn wishes(&self) -> Wishes {
        *lock(&self.wishes)
    }

    pub(super) async fn begun(&self) -> Reason {
        self.begun.cancelled().await;
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
        let exit_code = report.exit_code;
        let aborted = matches!(report.outcome, Ending::Aborted { .. });
        let owns_process = self.owns_process.load(Ordering::Relaxed);
        if owns_process {
            // The phases are over; the process must be, too, before long.
            self.watchdog.arm(self.config.reserve);
        } else {
            self.watchdog.disarm();
        }
        self.state.send_modify(|state| {
            state.stage = Stage::Over;
            state.report = Some(Arc::new(report));
        });
        self.nudge.notify_one();
        let mut core = lock(&self.core);
        let exits = core.run.as_ref().is_some_and(|run| run.policy.exit_process);
        // What never ran will not run any more, unless the shutdown is resumed. It may hold a
        // handle to this very shutdown.
        let leftover = if aborted { Vec::new() } else { core.registry.clear() };
        drop(core);
        drop(leftover);
        if exits && !owns_process {
            self.journal.flush(LAST_WORDS);
            self.watchdog.exit(exit_code);
        }
    }

    /// The driver of this generation was dropped before the end.
    pub(super) fn lose(&self, generation: u64) {
        self.state.send_if_modified(|state| {
            let lost = state.stage == Stage::ShuttingDown && state.generation == generation;
            state.lost |= lost;
            lost
        });
    }

    pub(super) fn generation(&self) -> u64 {
        self.state.borrow().generation
    }
}

// === impl Core ===

impl Core {
    /// The plan as declared so far.
    fn built_plan(&mut self) -> Plan {
        self.built.get_or_insert_with(|| self.plan.build()).clone()
    }

    pub(super) fn check_budget(&mut self) -> BudgetCheck {
        let plan = self.built_plan();
        let has_tasks =
            |phase: &Phase| plan.id(phase.as_str()).is_some_and(|id| self.registry.count(id) > 0);
        self.budget.check(&plan, has_tasks)
    }

    /// The figures, if the worst case is too long.
    pub(super) fn over_budget(&mut self) -> Option<BudgetCheck> {
        if self.budget.kill_after.is_none() || self.run.is_some() {
            return None;
        }
        Some(self.check_budget()).filter(|check| !check.fits())
    }

    /// Whether nothing can be added to the phase any more: it has started, or is over.
    fn is_too_late(&self, phase: PhaseId) -> bool {
        let is_over = |run: &Run| run.machine.is_over(phase);
        self.registry.has_started(phase) || self.run.as_ref().is_some_and(is_over)
    }

    /// What the platform allows counts from its signal. If it was only guessed at, and no signal
    /// came, nobody counts.
    fn budget_for(&self, reason: &Reason, config: &Config) -> Budget {
        let guessed = config.kill_after == KillAfter::Detect;
        let kill_after = self.budget.kill_after.filter(|_| !guessed || reason.signal().is_some());
        Budget { kill_after, ..self.budget }
    }
}

// === impl Refused ===

impl Refused {
    fn because(entry: Option<Entry>, why: Refusal) -> Result<Added, Box<Self>> {
        Err(Box::new(Self { entry, why }))
    }
}

// === impl Wishes ===

impl Default for Wishes {
    fn default() -> Self {
        Self { rung: Rung::Graceful, deadline: None }
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
