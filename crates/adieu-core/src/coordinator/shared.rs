//! The state behind every handle: what has been declared, what has been asked for, how far it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::completion::AwaitError;
use super::driver::{self, Driver};
use super::extensions::Extensions;
use super::gates::Drained;
use super::ladder::Ladder;
use super::moves::Moves;
use super::over_budget::Warning;
use super::process::Guards;
use super::ready::Cordon;
use super::refusals::Refusals;
use super::run::{Beginning, Run, Undescribed};
use crate::budget::{Budget, BudgetCheck};
use crate::config::{Config, KillAfter, Source};
use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::journal::{Journal, Line};
use crate::outcome::Ending;
use crate::plan::{PhaseId, Plan, PlanBuilder, PlanError};
use crate::readiness::{Facts, Readiness};
use crate::reason::Reason;
use crate::registry::Registry;
use crate::report::Report;
use crate::rung::Rung;
use crate::shield::drop_each_shielded;
use crate::signals::Listener;
use crate::status::{Stage, Status};
use crate::sync::lock;
use crate::time::{Instant, now};
use crate::watchdog::{LAST_WORDS, Watchdog};

/// How long the process may take to exit at least, however short the reserve is.
pub(super) const LEAST_EXIT: Duration = Duration::from_secs(1);

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
    /// Tells the driver that there is something new: a wish, ended tasks, or the end.
    pub(super) nudge: Arc<Notify>,
    pub(super) ladder: Mutex<Ladder>,
    pub(super) listener: Mutex<Option<Listener>>,
    pub(super) guards: Mutex<Guards>,
    pub(super) watchdog: Watchdog,
    pub(super) owns_process: AtomicBool,
    pub(super) journal: Journal,
    /// Those that this shutdown drains, and the lame duck watches.
    pub(super) gates: Mutex<Vec<Gate>>,
    pub(super) drained: Mutex<Vec<Drained>>,
    /// Whether no lame duck is waited for, unless one is configured.
    pub(super) drains_at_once: AtomicBool,
    /// Held while a cordon is put up or taken down.
    pub(super) cordon: Mutex<Cordon>,
    /// Those of loops, which no router knows of.
    pub(super) loops: Mutex<Vec<Gate>>,
    /// What was refused because the shutdown had begun.
    pub(super) refusals: Refusals,
    /// Fires when the shutdown begins.
    pub(super) begun: CancellationToken,
    /// What has begun and ended, for those who watch.
    pub(super) moves: watch::Sender<Moves>,
    /// The latest driver, as long as it runs on a runtime.
    pub(super) driver: Mutex<Weak<Mutex<Driver>>>,
    pub(super) extensions: Extensions,
}

/// What has been declared, and the run. Behind one lock, because a phase must be closed to new
/// tasks in the same instant in which its tasks are taken.
pub(super) struct Core {
    pub(super) plan: PlanBuilder,
    pub(super) registry: Registry,
    pub(super) budget: Budget,
    /// The plan as built, until it changes.
    pub(super) built: Option<Plan>,
    pub(super) warning: Warning,
    /// How what the platform allows is known.
    pub(super) source: Source,
    /// What the deadline was shortened to before there was one.
    pub(super) limit: Option<Duration>,
    pub(super) home: Option<Handle>,
    pub(super) run: Option<Run>,
}

/// How far it is, and how it ended: judged together, so kept together.
pub(super) struct State {
    pub(super) stage: Stage,
    report: Option<Arc<Report>>,
    /// How often it has been resumed.
    generation: u64,
    /// Why there will be no report, if the driver is gone.
    lost: Option<AwaitError>,
    facts: Facts,
}

/// What has been asked for while it runs. Each only ever rises, so nothing asked for is lost
/// however often it is asked and however late the driver looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) rung: Rung,
    pub(super) deadline: Option<Instant>,
    /// How often phases have been given more to do, or more time, since the shutdown began.
    pub(super) grown: u64,
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
            warning: Warning::default(),
            source: Source::configured(),
            limit: None,
            home,
            run: None,
        };
        let state = State {
            stage: Stage::Up,
            report: None,
            generation: 0,
            lost: None,
            facts: Facts::default(),
        };
        Self {
            config,
            core: Mutex::new(core),
            state: watch::Sender::new(state),
            wishes: Mutex::new(Wishes::default()),
            nudge: Arc::default(),
            ladder: Mutex::default(),
            listener: Mutex::default(),
            guards: Mutex::default(),
            watchdog: Watchdog::new(),
            owns_process: AtomicBool::new(false),
            journal: Journal::new(),
            gates: Mutex::default(),
            drained: Mutex::default(),
            drains_at_once: AtomicBool::new(false),
            cordon: Mutex::default(),
            loops: Mutex::default(),
            refusals: Refusals::default(),
            begun: CancellationToken::new(),
            moves: watch::Sender::new(Moves::default()),
            driver: Mutex::default(),
            extensions: Extensions::default(),
        }
    }

    /// Tells one shutdown from another while it lives.
    pub(super) fn key(shared: &Arc<Self>) -> usize {
        Arc::as_ptr(shared).addr()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    // --- running ---

    /// Begins the shutdown if nobody has.
    pub(super) fn begin(self: &Arc<Self>, reason: Reason, from: Option<PhaseId>) {
        self.warn_now();
        let now = now();
        let mut core = lock(&self.core);
        if core.run.is_some() {
            return;
        }
        let plan = core.built_plan();
        let budget = core.budget_for(&reason, &self.config);
        let check = core.check_within(budget);
        let mut limits = budget.begin(now, &plan);
        let has_full_time = budget.kill_after.is_some() && core.limit.is_none();
        if let Some(deadline) = core.limit.and_then(|limit| now.checked_add(limit)) {
            limits.shorten(now, deadline);
        }
        let left = limits.deadline.saturating_duration_since(now);
        let policy = self.config.policies.of(&reason);
        let beginning = Beginning { reason: reason.clone(), from, plan, budget, limits, policy };
        core.run = Some(Run::new(now, beginning));
        // Known from here on to all who wait: one of them may be its only thread.
        core.home = core.home.take().or_else(|| Handle::try_current().ok());
        let home = core.home.clone();
        drop(core);

        self.watchdog.arm(left);
        self.journal.listen_here();
        self.journal.note(Line::Initiated {
            reason: reason.to_string(),
            deadline: left,
            phases: check.critical_path.phases.len(),
            worst_case: check.critical_path.worst_case,
            drain_window: check.drain.filter(|_| check.drain_is_open_ended && has_full_time),
        });
        if policy.exit_process
            && let Err(error) = self.start_watchdog()
        {
            self.journal.log(move || error!(%error, "failed to start the watchdog"));
        }
        let keeps_ready = !self.config.unready_after.is_zero() && !lock(&self.gates).is_empty();
        self.state.send_modify(|state| {
            state.stage = Stage::ShuttingDown;
            state.facts.keeps_ready = keeps_ready;
        });
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

    pub(super) fn change_facts(&self, change: impl FnOnce(&mut Facts)) {
        self.state.send_modify(|state| change(&mut state.facts));
    }

    pub(super) fn look_at_facts<T>(&self, look: impl FnOnce(&Facts) -> T) -> T {
        look(&self.state.borrow().facts)
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.state.borrow().readiness()
    }

    pub(super) async fn until_readiness(&self, wanted: impl Fn(Readiness) -> bool) -> Readiness {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| wanted(state.readiness())).await;
        // The sender is `self`, so the wait cannot have failed.
        reached.map_or(Readiness::Stopping, |state| state.readiness())
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

    /// Changes a report that has been published. Futures that have returned it keep the old one.
    pub(super) fn change_report(&self, change: impl FnOnce(&mut Report)) {
        self.state.send_if_modified(|state| {
            if let Some(report) = &mut state.report {
                change(Arc::make_mut(report));
            }
            false
        });
    }

    /// All phases are over: everybody who waits is told.
    pub(super) fn finish(&self, report: Report) {
        let exit_code = report.exit_code;
        let aborted = matches!(report.outcome, Ending::Aborted { .. });
        let owns_process = self.owns_process.load(Ordering::Relaxed);
        if owns_process {
            // The phases are over; the process must be, too, before long. Not sooner than its own
            // waits for guards and threads can take, unless the platform is.
            self.leave_process();
        } else {
            self.watchdog.disarm();
        }
        // First: whoever waits for the state may drop the runtime at once, and the driver on it
        // should not go back to its timer then.
        self.nudge.notify_one();
        self.state.send_modify(|state| {
            state.stage = Stage::Over;
            state.report = Some(Arc::new(report));
        });
        self.amend_report();
        let mut core = lock(&self.core);
        let exits = core.run.as_ref().is_some_and(|run| run.policy.exit_process);
        // What never ran will not run any more, unless the shutdown is resumed. It may hold a
        // handle to this very shutdown.
        let leftover = if aborted { Vec::new() } else { core.registry.clear() };
        drop(core);
        let drained = if aborted { Vec::new() } else { std::mem::take(&mut *lock(&self.drained)) };
        // Each alone: a destructor that panics must cost neither the others nor what follows.
        drop_each_shielded(leftover);
        drop_each_shielded(drained);
        if exits && !owns_process {
            let _ = self.journal.flush(LAST_WORDS);
            self.watchdog.exit(exit_code);
        }
    }

    /// The driver of this generation was dropped before the end.
    pub(super) fn lose(&self, generation: u64, why: AwaitError) {
        self.state.send_if_modified(|state| {
            let lost = state.stage == Stage::ShuttingDown && state.generation == generation;
            if lost {
                state.lost.get_or_insert(why);
            }
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
    pub(super) fn built_plan(&mut self) -> Plan {
        self.built.get_or_insert_with(|| self.plan.build()).clone()
    }

    pub(super) fn check_budget(&mut self) -> BudgetCheck {
        self.check_within(self.budget)
    }

    fn check_within(&mut self, budget: Budget) -> BudgetCheck {
        let plan = self.built_plan();
        budget.check(&plan, |id| self.registry.takes(id, budget.timeout_of(plan.get(id))))
    }

    /// The figures, if the worst case is too long.
    pub(super) fn over_budget(&mut self) -> Option<BudgetCheck> {
        if self.budget.kill_after.is_none() || self.run.is_some() {
            return None;
        }
        Some(self.check_budget()).filter(|check| !check.fits())
    }

    /// Whether nothing can be added to the phase any more: it has started, or is over.
    pub(super) fn is_too_late(&self, phase: PhaseId) -> bool {
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

// === impl Wishes ===

impl Default for Wishes {
    fn default() -> Self {
        Self { rung: Rung::Graceful, deadline: None, grown: 0 }
    }
}

// === impl State ===

impl State {
    pub(super) fn readiness(&self) -> Readiness {
        self.facts.readiness(self.stage)
    }

    /// The report, or why there will be none; `None` if there may still be one.
    pub(super) fn settled(&self) -> Option<Result<Arc<Report>, AwaitError>> {
        self.report().map(Ok).or(self.lost.map(Err))
    }

    pub(super) fn report(&self) -> Option<Arc<Report>> {
        self.report.clone().filter(|_| self.stage == Stage::Over)
    }
}
