//! Does what the machine decides: the only place in the crate that spawns, sleeps or aborts.
//!
//! [`Driver::step`] takes in what has happened and carries out what follows; it never waits.
//! Whoever calls it when something may have happened drives the shutdown, and calling it once too
//! often does no harm. On a multi-threaded runtime two do so:
//!
//! - a task on that runtime, which is fast, because what it starts is at hand;
//! - a thread, the stand-in, which looks in now and then, because tasks that block all workers
//!   would block the first, too. So deadlines hold and log lines come on a wedged runtime. It has a
//!   small runtime of its own, on which the library's own tasks run: those that only wait and
//!   signal, such as the lame duck, drains and turns to stop.
//!
//! On a current-thread runtime there is only the task: it must share that runtime's clock, which
//! tests pause. Without any runtime there is only a thread, with a runtime of its own.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::completion::AwaitError;
use super::machine::{Effect, Effects, Event, NewTask, PhaseState, PhaseTime, TaskState};
use super::moves::Moves;
use super::shared::{Shared, Wishes};
use crate::budget::Limits;
use crate::deadline::LiveDeadline;
use crate::journal::Line;
use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::plan::PhaseId;
use crate::registry::Entry;
use crate::report::Report;
use crate::status::Stage;
use crate::sync::lock;
use crate::task::{
    Crew, Describe, Detail, Done, Job, LazySpan, PhaseCx, RunCx, RunsOn, TaskCx, TaskId,
    spans_are_wanted,
};
use crate::time::{Instant, now};
use crate::watchdog::LAST_WORDS;

/// How often it says what it is waiting for.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// How many ended tasks are taken in at once, so that a flood of them cannot hold up the timers.
const BATCH: usize = 1024;

/// From so many tasks on they are spawned from outside the runtime. A worker that spawns wakes
/// another for each of them, which costs more than the spawning; measured, twice as much in all.
const MANY: usize = 256;

/// What stands in log and report for a task that does not describe itself in time.
const NO_ANSWER: &str = "(no answer when asked)";

/// How often the stand-in looks in.
const LOOK_IN: Duration = Duration::from_millis(20);

/// How the run begins.
#[derive(Clone, Copy)]
pub(super) enum Beginning {
    Fresh,
    Resumed { from: PhaseId, limits: Limits },
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    run: Arc<RunCx>,
    crew: Crew,
    beginning: Option<Beginning>,
    granted: Wishes,
    next_words: Instant,
    /// When there is next something to do, even if nothing happens.
    due: Instant,
    /// By phase, while it runs.
    phases: Vec<Option<Arc<PhaseCx>>>,
    /// Taken from the registry, about to be started.
    taken: Vec<(PhaseId, Vec<Taken>)>,
    /// Tasks with a timeout of their own, which have a token of their own.
    own_tokens: HashMap<TaskId, CancellationToken>,
    /// The phase after which doors close, and the one after which what was admitted is finished.
    unbinds: Option<PhaseId>,
    drained: Option<PhaseId>,
    over: bool,
    /// To be published, when its line has been logged.
    report: Option<Report>,
}

/// A task that was taken from the registry. Its name is the machine's now.
struct Taken {
    timeout: Option<Duration>,
    describe: Option<Describe>,
    runs_on: RunsOn,
    job: Box<dyn Job>,
}

/// Starts driving, on the runtime `home` if there is one.
pub(super) fn start(shared: &Arc<Shared>, home: Option<Handle>, beginning: Beginning) {
    let generation = shared.generation();
    let Some(home) = home else {
        return on_own_thread(shared, generation, beginning);
    };
    let stands_in = home.runtime_flavor() != RuntimeFlavor::CurrentThread;
    let stand_in = if stands_in { StandIn::start(shared, generation) } else { None };
    let own = stand_in.as_ref().map(|stand_in| stand_in.runtime.clone());
    let Some(driver) = Driver::new(shared, home.clone(), own, beginning) else { return };
    let driver = Arc::new(Mutex::new(driver));
    *lock(&shared.driver) = Arc::downgrade(&driver);
    // The runtime owns it, and all who await the report join it: it ends with the report.
    if stands_in {
        // Here, unless this is a task: to wake a worker for it costs more, and most allocators
        // give the memory of many tasks to the main thread more cheaply than to a worker.
        if tokio::task::try_id().is_none() {
            lock(&driver).step();
        }
        home.spawn(drive(Arc::clone(shared), Arc::clone(&driver), None));
        if let Some(stand_in) = stand_in {
            stand_in.give(driver);
        }
    } else {
        let lost = Lost::new(shared, generation);
        home.spawn(drive(Arc::clone(shared), driver, Some(lost)));
    }
}

/// Moves a shutdown that runs to another runtime, because its own does not poll tasks any more.
///
/// Tasks that were started stay where they are, and have their time; the others run on `runtime`.
pub(super) fn take_over(shared: &Arc<Shared>, runtime: &Handle) {
    let driver = lock(&shared.driver).upgrade();
    let Some(driver) = driver else { return };
    let stand_in = StandIn::start(shared, shared.generation());
    let own = stand_in.as_ref().map(|stand_in| stand_in.runtime.clone());
    lock(&driver).crew.move_to(runtime.clone(), own);
    // The driver that stands still may wait for the next nudge, and would keep it.
    shared.nudge.notify_one();
    runtime.spawn(drive(Arc::clone(shared), Arc::clone(&driver), None));
    if let Some(stand_in) = stand_in {
        stand_in.give(driver);
    }
}

async fn drive(shared: Arc<Shared>, driver: Arc<Mutex<Driver>>, lost: Option<Lost>) {
    let mut timer = pin!(tokio::time::sleep_until(now().into()));
    loop {
        let (over, due) = {
            let mut driver = lock(&driver);
            (driver.step(), driver.due)
        };
        let is_alone = lost.is_some();
        if over {
            if lock(&driver).report.is_none() {
                return; // The stand-in has published it; the runtime may be gone any moment.
            }
            if is_alone {
                let _ = shared.journal().flush(LAST_WORDS);
            } else {
                // Other tasks may need this worker.
                let _ = tokio::time::timeout(LAST_WORDS, shared.journal().idle()).await;
            }
            publish(&shared, &driver);
            drop(lost);
            return;
        }
        if is_alone {
            shared.journal().catch_up();
        }
        if timer.deadline().into_std() != due {
            timer.as_mut().reset(due.into());
        }
        tokio::select! {
            biased;
            () = shared.nudge.notified() => {}
            () = timer.as_mut() => {}
        }
    }
}

/// Publishes the report, once. The caller has waited for the last line, if the log keeps up.
fn publish(shared: &Shared, driver: &Mutex<Driver>) {
    let report = lock(driver).report.take();
    if let Some(mut report) = report {
        shared.with_run(|run, _, _| run.fill_in(&mut report));
        shared.finish(report);
    }
}

/// A thread that drives, so that the shutdown goes on when its runtime does not, and on whose
/// runtime the library's own tasks run.
struct StandIn {
    runtime: Handle,
    driver: std::sync::mpsc::Sender<Arc<Mutex<Driver>>>,
}

impl StandIn {
    /// Starts the thread, which waits for its driver. `None` if there is no thread for it, which is
    /// logged.
    fn start(shared: &Arc<Shared>, generation: u64) -> Option<Self> {
        let started = Self::try_start(shared, generation);
        let log = |error| {
            let log = move || error!(%error, "failed to start the stand-in thread");
            shared.journal().log(log);
        };
        started.map_err(log).ok()
    }

    fn try_start(shared: &Arc<Shared>, generation: u64) -> std::io::Result<Self> {
        // Only timers: sockets need file descriptors, which may have run out.
        let own = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let runtime = own.handle().clone();
        let (driver, given) = std::sync::mpsc::channel::<Arc<Mutex<Driver>>>();
        let shared = Arc::clone(shared);
        std::thread::Builder::new().name("adieu".into()).spawn(move || {
            if let Ok(driver) = given.recv() {
                own.block_on(stand_in(&driver, Lost::new(&shared, generation)));
            }
            // A task of ours that did not end may be inside a destructor of the application.
            own.shutdown_background();
        })?;
        Ok(Self { runtime, driver })
    }

    fn give(self, driver: Arc<Mutex<Driver>>) {
        let _ = self.driver.send(driver);
    }
}

async fn stand_in(driver: &Mutex<Driver>, mut lost: Lost) {
    loop {
        // First: whoever began has made the first step, and the task makes the next ones.
        tokio::time::sleep(LOOK_IN).await;
        let over = lock(driver).step();
        if over {
            let _ = lost.shared.journal().flush(LAST_WORDS);
            publish(&lost.shared, driver);
            // Nothing is lost, even if the other one has only just taken the report.
            let _ = lost.generation.take();
            return;
        }
    }
}

fn on_own_thread(shared: &Arc<Shared>, generation: u64, beginning: Beginning) {
    let lost = Lost::new(shared, generation);
    let spawned = std::thread::Builder::new().name("adieu".into()).spawn({
        let shared = Arc::clone(shared);
        move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    return shared
                        .journal()
                        .log(move || error!(%error, "failed to build a runtime"));
                }
            };
            if let Some(driver) = Driver::new(&shared, runtime.handle().clone(), None, beginning) {
                runtime.block_on(drive(shared, Arc::new(Mutex::new(driver)), Some(lost)));
            }
        }
    });
    if let Err(error) = spawned {
        shared.journal().log(move || error!(%error, "failed to start a thread for the shutdown"));
    }
}

/// Whether this is a worker of a multi-threaded runtime, which can be stood in for.
fn is_on_worker() -> bool {
    let current = Handle::try_current();
    current.is_ok_and(|current| current.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Dropped with the driver: whoever still waits is told that there will be no report.
struct Lost {
    shared: Arc<Shared>,
    generation: Option<u64>,
}

impl Lost {
    fn new(shared: &Arc<Shared>, generation: u64) -> Self {
        Self { shared: Arc::clone(shared), generation: Some(generation) }
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        if let Some(generation) = self.generation {
            let panicked = std::thread::panicking();
            let why = if panicked { AwaitError::DriverPanicked } else { AwaitError::RuntimeGone };
            self.shared.lose(generation, why);
        }
    }
}

// === impl Driver ===

impl Driver {
    fn new(
        shared: &Arc<Shared>,
        tasks_on: Handle,
        own: Option<Handle>,
        beginning: Beginning,
    ) -> Option<Self> {
        let (run, phases) = shared.with_run(|run, _, plan| (Arc::clone(&run.cx), plan.len()))?;
        Some(Self {
            crew: Crew::new(Shared::key(shared), tasks_on, own, Arc::clone(&shared.nudge)),
            shared: Arc::clone(shared),
            run,
            beginning: Some(beginning),
            granted: Wishes::default(),
            next_words: now() + STILL_WAITING,
            due: now(),
            phases: vec![None; phases],
            taken: Vec::new(),
            own_tokens: HashMap::new(),
            unbinds: shared.phase_id(Phase::BEFORE_SERVICE_UNBIND.as_str()).ok(),
            drained: shared.phase_id(Phase::SERVICE_REQUESTS_DONE.as_str()).ok(),
            over: false,
            report: None,
        })
    }

    /// Takes in what has happened, and carries out what follows. True when it is all over.
    fn step(&mut self) -> bool {
        if self.over {
            return true;
        }
        if let Some(beginning) = self.beginning.take() {
            self.begin(beginning);
        }
        self.take_in();
        self.grant();
        let now = now();
        if now >= self.due {
            self.on(Event::Tick);
        }
        if now >= self.next_words && !self.over {
            self.next_words = now + STILL_WAITING;
            self.say_what_is_waited_for();
        }
        self.due = self.next_due();
        if self.over {
            let report = self.shared.with_run(|run, registry, _| run.report(registry, now));
            if let Some(Report { outcome, took, .. }) = &report {
                let line = Line::Complete { outcome: outcome.clone(), took: *took };
                self.shared.journal().note(line);
            }
            self.report = report;
            self.close(&self.run.span);
        }
        self.over
    }

    /// Closes a span on the thread of the log: that calls the subscriber.
    fn close(&self, span: &LazySpan) {
        if let Some(span) = span.close() {
            self.shared.journal().log(move || drop(span));
        }
    }

    fn begin(&mut self, beginning: Beginning) {
        let effects = self.shared.with_run(|run, _, _| match beginning {
            Beginning::Fresh => run.machine.begin(now()),
            Beginning::Resumed { from, limits } => run.resume(from, limits, now()),
        });
        self.carry_out(effects);
    }

    fn take_in(&mut self) {
        loop {
            let batch = self.crew.take(BATCH);
            if batch.is_empty() {
                return;
            }
            self.shared.moves.send_if_modified(|moves| moves.tasks_ended(batch.len()));
            let effects = self.shared.with_run(|run, _, _| {
                let now = now();
                let mut effects = Effects::new();
                for Done { task, at, ended } in batch {
                    effects.extend(run.machine.on(now, Event::Joined { task, at, ended }));
                }
                effects
            });
            self.carry_out(effects);
        }
    }

    fn grant(&mut self) {
        let wishes = self.shared.wishes();
        if wishes == self.granted {
            return;
        }
        let has_grown = wishes.grown != self.granted.grown;
        self.granted = wishes;
        if let Some(drain) = self.drained.filter(|_| has_grown) {
            let rest =
                self.shared.with_run(|run, registry, plan| run.rest_after(drain, registry, plan));
            self.on(Event::Rest(drain, rest.unwrap_or_default()));
        }
        if let Some(deadline) = wishes.deadline {
            self.on(Event::Shorten(deadline));
        }
        self.on(Event::Climb(wishes.rung));
        // The machine alone knows the deadline; tasks see it through this.
        if let Some(limits) = self.shared.with_run(|run, _, _| run.machine.limits()) {
            self.run.deadline.shorten(limits.deadline);
        }
    }

    fn on(&mut self, event: Event) {
        let effects = self.shared.with_run(|run, _, _| run.machine.on(now(), event));
        self.carry_out(effects);
    }

    fn next_due(&self) -> Instant {
        let due = self.shared.with_run(|run, _, _| run.machine.next_due()).flatten();
        due.map_or(self.next_words, |due| due.min(self.next_words))
    }

    fn carry_out(&mut self, effects: Option<Effects>) {
        let mut effects = VecDeque::from(effects.unwrap_or_default());
        if effects.is_empty() {
            return;
        }
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Open(phase) => effects.extend(self.open(phase)),
                Effect::Start { phase, first, cut } => self.start(phase, first, cut),
                Effect::Cut(phase, cut) => self.cut(phase, cut),
                Effect::CancelPhase(phase) => {
                    if let Some(phase) = &self.phases[phase.0] {
                        phase.token.cancel();
                    }
                }
                Effect::CancelTask(task) => {
                    if let Some(token) = self.own_tokens.get(&task) {
                        token.cancel();
                    }
                }
                Effect::Abort(task) => self.crew.abort(task),
                Effect::EndWaiting => self.run.hurry.cancel(),
                Effect::TaskFailed(task) => self.log_failure(task),
                Effect::PhaseOver(phase) => self.say_phase_over(phase),
                Effect::Over => self.over = true,
            }
        }
    }

    fn open(&mut self, phase: PhaseId) -> Effects {
        let opened = self.shared.with_run(|run, registry, plan| {
            let entries = registry.start(phase);
            let mut tasks = Vec::with_capacity(entries.len());
            let entries: Vec<Taken> = entries
                .into_iter()
                .map(|Entry { name, timeout, describe, runs_on, job, .. }| {
                    tasks.push(NewTask { name, timeout });
                    Taken { timeout, describe, runs_on, job }
                })
                .collect();
            let rest = plan.is_open_ended(phase.0).then(|| run.rest_after(phase, registry, plan));
            let time = PhaseTime { timeout: plan.timeout_of(phase.0), rest };
            let effects = run.machine.on(now(), Event::Opened { phase, time, tasks });
            (entries, effects)
        });
        let Some((entries, effects)) = opened else {
            return Effects::new();
        };
        if !entries.is_empty() {
            self.taken.push((phase, entries));
        }
        effects
    }

    fn start(&mut self, phase: PhaseId, first: TaskId, cut: Instant) {
        let taken = self.taken.iter().position(|(of, _)| *of == phase);
        let (_, entries) =
            taken.map(|at| self.taken.swap_remove(at)).unwrap_or((phase, Vec::new()));
        let Some((name, names, began, started)) = self.shared.with_run(|run, _, _| {
            let machine = &run.machine;
            let starting = machine.phase(phase);
            let tasks = if spans_are_wanted() { starting.tasks.clone() } else { 0..0 };
            let names = tasks.map(|task| Arc::clone(&machine.task(TaskId(task)).name)).collect();
            (starting.name.clone(), names, machine.began(), machine.since(phase))
        }) else {
            return;
        };
        let cx = Arc::new(PhaseCx {
            run: Arc::clone(&self.run),
            name,
            cut: LiveDeadline::new(began, cut),
            token: CancellationToken::new(),
            span: LazySpan::default(),
            first,
            names,
        });
        self.crew.reserve(entries.len());
        let many = entries.len() >= MANY;
        let start_all = || {
            for (task, entry) in (first.0..).map(TaskId).zip(entries) {
                let own_cut = entry.timeout.zip(started).map(|(own, since)| since + own);
                let own_cut = own_cut.filter(|own| *own < cut);
                let cx = TaskCx::new(Arc::clone(&cx), own_cut);
                if own_cut.is_some() {
                    self.own_tokens.insert(task, cx.token().clone());
                }
                if let Some(describe) = entry.describe {
                    self.shared.with_run(|run, _, _| run.describes(task, describe));
                }
                entry.job.start(cx, task, entry.runs_on, &mut self.crew);
            }
        };
        if many && is_on_worker() {
            tokio::task::block_in_place(start_all);
        } else {
            start_all();
        }
        self.phases[phase.0] = Some(cx);
        self.shared.moves.send_if_modified(Moves::phase_began);
    }

    fn cut(&self, phase: PhaseId, cut: Instant) {
        if let Some(phase) = &self.phases[phase.0] {
            phase.cut.shorten(cut);
        }
    }

    fn say_what_is_waited_for(&self) {
        let status = self.shared.with_run(|run, _, _| run.status(Stage::ShuttingDown, now()));
        if let Some(status) = status {
            let left = status.until_cut().unwrap_or_default();
            let names_only = status.clone().without_details().waiting_line();
            let ask = Arc::new(move || status.clone().describe().waiting_line());
            let waiting_for = Detail::new(ask, names_only);
            self.shared.journal().note(Line::StillWaiting { waiting_for, left });
        }
    }

    fn log_failure(&self, id: TaskId) {
        let found = self.shared.with_run(|run, _, _| {
            let task = run.machine.task(id);
            let TaskState::Over { outcome, took } = &task.state else { return None };
            let phase = run.machine.phase(task.phase).name.clone();
            let name = Arc::clone(&task.name);
            Some((phase, name, outcome.clone(), *took, run.describe_of(id)))
        });
        let Some(Some((phase, task, outcome, took, describe))) = found else { return };
        let detail = describe.map(|describe| Detail::new(describe, NO_ANSWER));
        if let Some(detail) = &detail {
            self.shared.with_run(|run, _, _| run.detailed(id, Arc::clone(detail)));
        }
        self.shared.journal().note(Line::TaskFailed { phase, task, outcome, detail, took });
    }

    fn say_phase_over(&mut self, phase: PhaseId) {
        if let Some(over) = self.phases[phase.0].take() {
            self.close(&over.span);
        }
        if self.unbinds == Some(phase) {
            self.shared.change_facts(|facts| facts.keeps_ready = false);
        } else if self.drained == Some(phase) {
            self.shared.change_facts(|facts| facts.drained = true);
        }
        if !self.shared.journal().is_heard() {
            return;
        }
        let found = self.shared.with_run(|run, registry, _| {
            let over = run.machine.phase(phase);
            let PhaseState::Over { outcome, ran } = &over.state else {
                return None;
            };
            // Tasks that were skipped are still where they were put.
            let tasks = over.tasks.len() + registry.count(phase);
            let took = ran.map(|(from, to)| to.saturating_duration_since(from));
            (tasks > 0).then(|| (over.name.clone(), outcome.clone(), took, tasks))
        });
        let journal = self.shared.journal();
        match found.flatten() {
            Some((phase, outcome @ Outcome::Skipped { .. }, _, tasks)) => {
                journal.note(Line::PhaseSkipped { phase, outcome, tasks });
            }
            Some((phase, outcome, took, tasks)) => {
                let took = took.unwrap_or_default();
                journal.note(Line::PhaseOver { phase, outcome, took, tasks });
            }
            None => {}
        }
    }
}
