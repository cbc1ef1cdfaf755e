//! Carries out the effects of the machine. During a shutdown, only the driver starts, cancels and
//! aborts tasks.
//!
//! [`Driver::step`] processes everything that has happened and carries out the effects. It never waits.
//! Any thread may call it at any time, and an additional step does no harm. `driver/threads.rs` decides
//! which threads do.

mod log;
mod threads;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use super::engine::Requests;
use super::machine::{Effect, Effects, Event, NewTask, PhaseTime};
use super::progress_counts::ProgressCounts;
use super::shared::Shared;
use crate::budget::Limits;
use crate::deadline::LiveDeadline;
use crate::journal::PROGRESS_INTERVAL;
use crate::outcome::Ending;
use crate::phase::Phase;
use crate::plan::{PhaseId, Rank};
use crate::registry::{Entry, Started};
use crate::task::{Crew, Done, LazySpan, PhaseCx, RunCx, TaskCx, TaskId, spans_are_wanted};
use crate::time::{Instant, now};

pub(super) use threads::{start, take_over};

/// How many ended tasks are processed at once, so that very many of them do not delay the timers.
const BATCH: usize = 1024;

/// If a phase has this many tasks, they are spawned from outside the runtime. A worker that spawns wakes
/// another worker for each task, which costs more than spawning it (measured: twice as much in total).
const MANY: usize = 256;

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
    /// `None` after the first step.
    beginning: Option<Beginning>,
    /// The requests that have been applied.
    applied: Requests,
    /// When the tasks that have not ended are next logged.
    next_progress_log: Instant,
    /// When the next step is due, even if nothing happens.
    due: Instant,
    /// The phases that run, by position.
    phases: Vec<Option<Arc<PhaseCx>>>,
    /// The tasks that were taken from the registry and are about to be started.
    taken: Vec<(PhaseId, Started)>,
    /// The tokens of tasks that have a timeout of their own.
    own_tokens: HashMap<TaskId, CancellationToken>,
    /// When this phase is over, the process is unready, even before `unready-after` has elapsed.
    before_unbind: Option<PhaseId>,
    /// The phase after which admitted work has finished.
    requests_done: Option<PhaseId>,
    /// Whether tasks that may close resources have started.
    closes_resources: bool,
    over: bool,
    /// Whether the report has been built. It is published when its line has been logged.
    has_report: bool,
}

// === impl Driver ===

impl Driver {
    fn new(
        shared: &Arc<Shared>,
        tasks_on: Handle,
        own: Option<Handle>,
        beginning: Beginning,
    ) -> Option<Self> {
        let (run, phases) =
            shared.with_run(|run, declared| (Arc::clone(&run.cx), declared.plan.len()))?;
        let nudge = Arc::clone(&shared.engine.nudge);
        Some(Self {
            crew: Crew::new(Shared::key(shared), tasks_on, own, nudge),
            shared: Arc::clone(shared),
            run,
            beginning: Some(beginning),
            applied: Requests::default(),
            next_progress_log: now() + PROGRESS_INTERVAL,
            due: now(),
            phases: vec![None; phases],
            taken: Vec::new(),
            own_tokens: HashMap::new(),
            before_unbind: shared.phase_id(Phase::BEFORE_SERVICE_UNBIND.as_str()).ok(),
            requests_done: shared.phase_id(Phase::SERVICE_REQUESTS_DONE.as_str()).ok(),
            closes_resources: false,
            over: false,
            has_report: false,
        })
    }

    /// Processes ended tasks, requests and timers, and carries out the effects. Returns true when the shutdown is over.
    fn step(&mut self) -> bool {
        if self.over {
            return true;
        }
        if let Some(beginning) = self.beginning.take() {
            self.begin(beginning);
        }
        self.process_ended_tasks();
        self.apply_requests();
        let now = now();
        if now >= self.due {
            self.on(Event::Tick);
        }
        if now >= self.next_progress_log && !self.over {
            self.next_progress_log = now + PROGRESS_INTERVAL;
            self.log_waiting();
        }
        self.due = self.next_due();
        if self.over {
            self.end(now);
        }
        self.over
    }

    fn begin(&mut self, beginning: Beginning) {
        let effects = self.shared.with_run(|run, _| match beginning {
            Beginning::Fresh => run.machine.begin(now()),
            Beginning::Resumed { from, limits } => run.resume(from, limits, now()),
        });
        self.carry_out(effects);
    }

    /// Makes the report, which is published later.
    fn end(&mut self, now: Instant) {
        let ending = self.shared.with_run(|run, _| run.machine.ending());
        if !matches!(ending, Some(Ending::Aborted { .. })) {
            self.shared.close_gates(); // An aborted shutdown can be resumed.
        }
        self.log_unfinished(&self.shared.find_unfinished());
        let unfinished = self.shared.all_unfinished();
        let causes = self.shared.process.exit_causes();
        self.shared.with_run(|run, _| run.set_problems(unfinished, causes));
        let ended = self.shared.with_run(|run, declared| run.end(&declared.registry, now));
        if let Some((outcome, took)) = ended {
            self.has_report = true;
            self.log_complete(outcome, took);
        }
        self.close(&self.run.span);
    }

    fn process_ended_tasks(&mut self) {
        loop {
            let batch = self.crew.take(BATCH);
            if batch.is_empty() {
                return;
            }
            self.shared.engine.counts.send_if_modified(|counts| counts.tasks_ended(batch.len()));
            let effects = self.shared.with_run(|run, _| {
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

    fn apply_requests(&mut self) {
        let requests = self.shared.engine.requests();
        if requests == self.applied {
            return;
        }
        let has_grown = requests.grown != self.applied.grown;
        self.applied = requests;
        if let Some(drain) = self.requests_done.filter(|_| has_grown) {
            let rest = self.shared.with_run(|run, declared| run.rest_after(drain, declared));
            self.on(Event::Rest(drain, rest.unwrap_or_default()));
        }
        if let Some(deadline) = requests.deadline {
            self.on(Event::Shorten(deadline));
        }
        self.on(Event::Climb(requests.rung));
        // The machine decides the deadline. Tasks read it here.
        if let Some(limits) = self.shared.with_run(|run, _| run.machine.limits()) {
            self.run.deadline.shorten(limits.deadline);
        }
    }

    fn on(&mut self, event: Event) {
        let effects = self.shared.with_run(|run, _| run.machine.on(now(), event));
        self.carry_out(effects);
    }

    fn next_due(&self) -> Instant {
        let due = self.shared.with_run(|run, _| run.machine.next_due()).flatten();
        due.map_or(self.next_progress_log, |due| due.min(self.next_progress_log))
    }

    fn carry_out(&mut self, effects: Option<Effects>) {
        let mut effects = VecDeque::from(effects.unwrap_or_default());
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
                Effect::CloseGates => self.shared.close_gates(),
                Effect::TaskFailed(task) => self.log_failure(task),
                Effect::LateError(task, error) => {
                    self.shared.with_run(|run, _| run.add_late_error(task, error));
                }
                Effect::PhaseOver(phase) => {
                    self.close_phase(phase);
                    self.update_readiness(phase);
                    self.log_phase_over(phase);
                }
                Effect::Over => self.over = true,
            }
        }
    }

    /// Takes the tasks of a phase from the registry. From now on, none can be added to it.
    fn open(&mut self, phase: PhaseId) -> Effects {
        let opened = self.shared.with_run(|run, declared| {
            let mut entries = declared.registry.start(phase);
            let is_open_ended = declared.plan.is_open_ended(phase.0);
            let rest = is_open_ended.then(|| run.rest_after(phase, declared));
            let time = PhaseTime { timeout: declared.plan.timeout_of(phase.0), rest };
            let tasks = entries.iter_mut().map(|Entry { name, timeout, .. }| NewTask {
                name: std::mem::take(name),
                timeout: *timeout,
            });
            let effects = run.machine.opened(now(), phase, time, tasks);
            (entries, effects)
        });
        let Some((entries, effects)) = opened else {
            return Effects::new();
        };
        if entries.len() > 0 {
            self.taken.push((phase, entries));
        }
        effects
    }

    /// Starts the tasks that were taken. The first has the id `first`, and the others follow.
    fn start(&mut self, phase: PhaseId, first: TaskId, cut: Instant) {
        let taken = self.taken.iter().position(|(of, _)| *of == phase);
        let (_, entries) =
            taken.map(|at| self.taken.swap_remove(at)).unwrap_or((phase, Started::default()));
        if entries.len() > 0 {
            self.note_work_before_close(phase);
        }
        let Some((name, names, began, started)) = self.shared.with_run(|run, _| {
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
            cut: Arc::new(LiveDeadline::new(began, cut)),
            token: CancellationToken::new(),
            span: LazySpan::default(),
            first,
            names,
        });
        self.crew.reserve(entries.len());
        let many = entries.len() >= MANY;
        let start_all = || {
            for (task, entry) in (first.0..).map(TaskId).zip(entries.into_entries()) {
                let own_cut = entry.timeout.zip(started).map(|(own, since)| since + own);
                let own_cut = own_cut.filter(|own| *own < cut);
                let cx = TaskCx::new(Arc::clone(&cx), own_cut);
                if own_cut.is_some() {
                    self.own_tokens.insert(task, cx.token().clone());
                }
                if let Some(describe) = entry.describe {
                    self.shared.with_run(|run, _| run.add_describe(task, describe));
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
        self.shared.engine.counts.send_if_modified(ProgressCounts::phase_began);
    }

    /// Records the remaining work before the first tasks that run after the actors, because these tasks may
    /// close the resources of that work.
    fn note_work_before_close(&mut self, phase: PhaseId) {
        if self.closes_resources {
            return;
        }
        let rank = self.shared.with_run(|run, _| run.rank_of(phase));
        if rank == Some(Rank::Last) {
            self.closes_resources = true;
            self.log_unfinished(&self.shared.find_work_before_close());
        }
    }

    fn cut(&self, phase: PhaseId, cut: Instant) {
        if let Some(phase) = &self.phases[phase.0] {
            phase.cut.shorten(cut);
        }
    }

    fn close_phase(&mut self, phase: PhaseId) {
        if let Some(over) = self.phases[phase.0].take() {
            self.close(&over.span);
        }
    }

    fn update_readiness(&self, over: PhaseId) {
        if self.before_unbind == Some(over) {
            self.shared.progress.change_facts(|facts| facts.keeps_ready = false);
        } else if self.requests_done == Some(over) {
            self.shared.progress.change_facts(|facts| facts.drained = true);
        }
    }
}

/// Returns whether this is a worker of a multi-threaded runtime, for which another thread can stand in.
fn is_on_worker() -> bool {
    let current = Handle::try_current();
    current.is_ok_and(|current| current.runtime_flavor() == RuntimeFlavor::MultiThread)
}
