//! Decides what happens next in a shutdown.
//!
//! The input is the time and an [`Event`]; the output is a list of [`Effect`]s, which the driver carries
//! out. The machine is synchronous and can be cloned. It has no clock, no runtime and no log, so tests
//! can try every order of events by calling a function.
//!
//! # Invariants
//!
//! 1. A phase opens when all phases that it waits for are over, never before, and at most once.
//! 2. Cancelling and aborting are requests. A task is over when the driver has joined it, or when it has
//!    been abandoned, which happens at a fixed time.
//! 3. Every phase is over at the end of its rank's share of the deadline, so that later phases have the
//!    rest. Only `actor-system-terminate`, which is never skipped, has one grace more.
//! 4. The deadline never becomes later. The rung only rises.

mod pressure;
mod state;
mod tasks;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use state::{Cause, OwnTime, Pressure, Timer};
pub(crate) use state::{NewTask, PhaseRun, PhaseState, PhaseTime, TaskRun, TaskState};

use crate::budget::Limits;
use crate::outcome::{Ending, Outcome, SkipCause};
use crate::plan::{PhaseId, Plan, Rank};
use crate::rung::Rung;
use crate::task::{Ended, TaskId};
use crate::time::{Duration, Instant};

/// Something that has happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A task is over.
    Joined { task: TaskId, at: Instant, ended: Ended },
    /// Time has passed.
    Tick,
    /// A repeated signal, or another request, has made the shutdown more urgent.
    Climb(Rung),
    /// The deadline has become earlier.
    Shorten(Instant),
    /// The worst case of the phases after this one has become longer.
    Rest(PhaseId, Duration),
}

/// Something that the driver must do.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a shutdown makes no progress if its effects are not carried out"]
pub(crate) enum Effect {
    /// Take the phase's tasks, and call `opened` with them.
    Open(PhaseId),
    /// Spawn the tasks that were taken. The first has this id, and the others follow. The phase is
    /// cancelled at that instant.
    Start { phase: PhaseId, first: TaskId, cut: Instant },
    /// The phase is now cancelled at this earlier instant.
    Cut(PhaseId, Instant),
    /// Fire the token of every task of the phase.
    CancelPhase(PhaseId),
    /// Fire the token of one task.
    CancelTask(TaskId),
    /// Abort the task, and join it.
    Abort(TaskId),
    /// End waits in which no work is done, such as the lame duck.
    EndWaiting,
    /// Close all gates: the shutdown became a hard stop.
    CloseGates,
    /// Log a task that was not clean.
    TaskFailed(TaskId),
    /// The task returned this error after its time was up.
    LateError(TaskId, Arc<str>),
    /// A phase is over: release it and log it.
    PhaseOver(PhaseId),
    /// All phases are over.
    Over,
}

pub(crate) type Effects = Vec<Effect>;

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    phases: Vec<PhaseRun>,
    tasks: Vec<TaskRun>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    began: Instant,
    limits: Limits,
    rung: Rung,
    broken_by: Option<PhaseId>,
    /// Phases that are not over yet.
    left: usize,
    over: bool,
}

// === impl Machine ===

impl Machine {
    /// Makes the machine of a shutdown that begins at `now`. With `from`, all phases before that one are
    /// skipped.
    pub(crate) fn new(plan: &Plan, from: Option<PhaseId>, limits: Limits, now: Instant) -> Self {
        let mut phases: Vec<PhaseRun> = plan
            .ids()
            .map(|id| {
                let planned = plan.get(id);
                PhaseRun {
                    name: planned.name().clone(),
                    recover: planned.recovers(),
                    enabled: planned.is_enabled(),
                    rank: planned.rank(),
                    waits_for: planned.waits_for().len(),
                    dependents: Vec::new(),
                    time: PhaseTime { timeout: planned.timeout(), rest: None },
                    state: PhaseState::Waiting,
                    tasks: 0..0,
                    running: 0,
                    pressure: Pressure::None,
                    due: None,
                }
            })
            .collect();
        for id in plan.ids() {
            for &on in plan.get(id).waits_for() {
                phases[on.0].dependents.push(id);
            }
        }
        let mut machine = Self {
            left: phases.len(),
            phases,
            tasks: Vec::new(),
            timers: BinaryHeap::new(),
            began: now,
            limits,
            rung: Rung::Graceful,
            broken_by: None,
            over: false,
        };
        if let Some(from) = from {
            let before = plan.ancestors(from);
            machine.skip_quietly(&SkipCause::BeforeFrom, |id| before[id.0]);
        }
        machine
    }

    /// Opens the phases that wait for no other.
    pub(crate) fn begin(&mut self, now: Instant) -> Effects {
        let mut effects = Effects::new();
        let ready: Vec<PhaseId> = self.ids().filter(|&id| self.is_ready(id)).collect();
        self.advance(now, ready, &mut effects);
        effects
    }

    /// Continues after an abort, within new limits: the phases that were skipped because of it run now,
    /// except those before `from`.
    pub(crate) fn resume(
        &mut self,
        plan: &Plan,
        from: PhaseId,
        limits: Limits,
        now: Instant,
    ) -> Effects {
        let before = plan.ancestors(from);
        self.limits = limits;
        self.broken_by = None;
        self.over = false;
        for id in self.ids() {
            let phase = &mut self.phases[id.0];
            let skipped_by_abort = matches!(
                &phase.state,
                PhaseState::Over {
                    outcome: Outcome::Skipped { because: SkipCause::Broken { .. } },
                    ..
                }
            );
            if skipped_by_abort && !before[id.0] {
                phase.state = PhaseState::Waiting;
                self.left += 1;
            }
        }
        for id in self.ids() {
            let waits_for =
                plan.get(id).waits_for().iter().filter(|&&on| !self.is_over(on)).count();
            self.phases[id.0].waits_for = waits_for;
        }
        self.begin(now)
    }

    /// The driver has opened a phase, with these tasks. No more can be added. The tasks are an iterator,
    /// because a list of very many would cost as much memory as their states.
    pub(crate) fn opened(
        &mut self,
        now: Instant,
        id: PhaseId,
        time: PhaseTime,
        tasks: impl Iterator<Item = NewTask>,
    ) -> Effects {
        let mut effects = Effects::new();
        let first = self.tasks.len();
        self.phases[id.0].time = time;
        let cut = self.cut(now, id, now);
        self.tasks.reserve(tasks.size_hint().1.unwrap_or_default());
        for (task, new) in (first..).map(TaskId).zip(tasks) {
            let own_cut = new.timeout.map(|timeout| now + timeout).filter(|own| *own < cut);
            let own = own_cut.map(|cut| Box::new(OwnTime { cut, due: None }));
            self.tasks.push(TaskRun { name: new.name, phase: id, own, state: TaskState::Running });
            if let Some(own_cut) = own_cut {
                self.set_task_due(task, own_cut);
            }
        }
        let all = first..self.tasks.len();
        let phase = &mut self.phases[id.0];
        phase.state = PhaseState::Running { since: now, cut };
        phase.running = all.len();
        phase.tasks = all;
        if phase.running == 0 {
            self.close(now, id, &mut effects);
        } else {
            effects.push(Effect::Start { phase: id, first: TaskId(first), cut });
            self.set_phase_due(id, cut);
        }
        effects
    }

    pub(crate) fn on(&mut self, now: Instant, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Joined { task, at, ended } => self.join(now, task, at, ended, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
            Event::Climb(rung) => self.climb(now, rung, &mut effects),
            Event::Shorten(deadline) => self.shorten(now, deadline, &mut effects),
            Event::Rest(phase, rest) => self.leave_time(now, phase, rest, &mut effects),
        }
        effects
    }

    /// Returns when `Tick` is next due.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if self.due_of(timer) == Some(at) {
                return Some(at);
            }
            self.timers.pop();
        }
        None
    }

    pub(crate) fn is_over(&self, id: PhaseId) -> bool {
        matches!(self.phases[id.0].state, PhaseState::Over { .. })
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn phase(&self, id: PhaseId) -> &PhaseRun {
        &self.phases[id.0]
    }

    pub(crate) fn phases(&self) -> &[PhaseRun] {
        &self.phases
    }

    pub(crate) fn task(&self, id: TaskId) -> &TaskRun {
        &self.tasks[id.0]
    }

    /// Takes the name of a task, which has none afterwards.
    pub(crate) fn take_name(&mut self, id: TaskId) -> Arc<str> {
        std::mem::take(&mut self.tasks[id.0].name)
    }

    pub(crate) fn tasks_of(&self, phase: &PhaseRun) -> &[TaskRun] {
        &self.tasks[phase.tasks.clone()]
    }

    /// Returns when the task started. All tasks of a phase start with it.
    pub(crate) fn started(&self, task: &TaskRun) -> Option<Instant> {
        self.since(task.phase)
    }

    /// Returns when the phase started, if it did.
    pub(crate) fn since(&self, phase: PhaseId) -> Option<Instant> {
        match self.phases[phase.0].state {
            PhaseState::Running { since, .. } => Some(since),
            PhaseState::Over { ran, .. } => ran.map(|(since, _)| since),
            PhaseState::Waiting | PhaseState::Opening => None,
        }
    }

    /// Returns when the task will be cancelled, if it runs and has not been.
    pub(crate) fn cut_of(&self, task: &TaskRun) -> Option<Instant> {
        let PhaseState::Running { cut, .. } = self.phases[task.phase.0].state else { return None };
        let own = task.own.as_ref().map_or(cut, |own| own.cut.min(cut));
        matches!(task.state, TaskState::Running).then_some(own)
    }

    /// Returns how the shutdown ended. Meaningful once it is over.
    pub(crate) fn ending(&self) -> Ending {
        if let Some(broken) = self.broken_by {
            return Ending::Aborted { phase: self.phases[broken.0].name.to_string() };
        }
        let clean = self.phases.iter().all(|phase| match &phase.state {
            PhaseState::Over { outcome, .. } => outcome.is_clean(),
            PhaseState::Waiting | PhaseState::Opening | PhaseState::Running { .. } => false,
        });
        if clean { Ending::Clean } else { Ending::Unclean }
    }

    // --- phases ---

    fn ids(&self) -> impl Iterator<Item = PhaseId> + use<> {
        (0..self.phases.len()).map(PhaseId)
    }

    fn is_ready(&self, id: PhaseId) -> bool {
        let phase = &self.phases[id.0];
        matches!(phase.state, PhaseState::Waiting) && phase.waits_for == 0
    }

    /// Opens or skips the phases that are ready, and those that become ready because of it.
    ///
    /// It uses a list instead of recursion, so that a long chain of disabled phases cannot overflow the
    /// stack.
    fn advance(&mut self, now: Instant, mut ready: Vec<PhaseId>, effects: &mut Effects) {
        while let Some(id) = ready.pop() {
            if let Some(because) = self.skip_cause(now, id) {
                self.end_phase(id, Outcome::Skipped { because }, None, effects);
                ready.extend(self.release_dependents(id));
            } else {
                self.phases[id.0].state = PhaseState::Opening;
                effects.push(Effect::Open(id));
            }
        }
        if self.left == 0 && !std::mem::replace(&mut self.over, true) {
            effects.push(Effect::Over);
        }
    }

    fn skip_cause(&self, now: Instant, id: PhaseId) -> Option<SkipCause> {
        let phase = &self.phases[id.0];
        if !phase.enabled {
            return Some(SkipCause::Disabled);
        }
        match phase.rank {
            Rank::Early if self.rung >= Rung::HardStop => Some(SkipCause::HardStop),
            Rank::Early | Rank::Closing | Rank::Last if now >= self.limits.cut_of(phase.rank) => {
                Some(SkipCause::OutOfTime)
            }
            Rank::Early | Rank::Closing | Rank::Actors | Rank::Last => None,
        }
    }

    /// Returns when a phase that has run since `since` must be cancelled.
    fn cut(&self, now: Instant, id: PhaseId, since: Instant) -> Instant {
        let phase = &self.phases[id.0];
        let PhaseTime { timeout, rest } = phase.time;
        let own = match rest {
            Some(rest) => self.limits.window(since, timeout, rest),
            None => since + timeout,
        };
        let shared = self.limits.cut_of(phase.rank).max(now);
        match phase.rank {
            Rank::Early | Rank::Closing | Rank::Last => own.min(shared),
            // Actors are always drained, so they get one grace at least.
            Rank::Actors => own.min(shared.max(now + self.limits.grace)),
        }
    }

    fn close(&mut self, now: Instant, id: PhaseId, effects: &mut Effects) {
        let phase = &self.phases[id.0];
        let PhaseState::Running { since, .. } = phase.state else {
            return;
        };
        let worst = self
            .tasks_of(phase)
            .iter()
            .filter_map(|task| match &task.state {
                TaskState::Over { outcome, .. } => Some(outcome),
                TaskState::Running | TaskState::Cancelling(_) | TaskState::Aborting(_) => None,
            })
            .max_by_key(|outcome| outcome.severity())
            .cloned()
            .unwrap_or(Outcome::Finished);
        let broke = !phase.recover && breaks(&worst);
        self.end_phase(id, worst, Some((since, now)), effects);

        let mut ready = self.release_dependents(id);
        if broke && self.broken_by.is_none() {
            self.broken_by = Some(id);
            let because = SkipCause::Broken { phase: self.phases[id.0].name.to_string() };
            self.skip_quietly(&because, |_| true);
            ready.clear();
        }
        self.advance(now, ready, effects);
    }

    fn end_phase(
        &mut self,
        id: PhaseId,
        outcome: Outcome,
        ran: Option<(Instant, Instant)>,
        effects: &mut Effects,
    ) {
        let phase = &mut self.phases[id.0];
        phase.time = PhaseTime { timeout: phase.timeout(), rest: None };
        phase.state = PhaseState::Over { outcome, ran };
        phase.due = None;
        self.left -= 1;
        effects.push(Effect::PhaseOver(id));
    }

    /// Returns the phases that waited for no phase other than `id`.
    fn release_dependents(&mut self, id: PhaseId) -> Vec<PhaseId> {
        let dependents = std::mem::take(&mut self.phases[id.0].dependents);
        for dependent in &dependents {
            let phase = &mut self.phases[dependent.0];
            phase.waits_for = phase.waits_for.saturating_sub(1);
        }
        let ready = dependents.iter().copied().filter(|&id| self.is_ready(id)).collect();
        self.phases[id.0].dependents = dependents;
        ready
    }

    /// Skips waiting phases without opening the phases that depend on them.
    fn skip_quietly(&mut self, because: &SkipCause, which: impl Fn(PhaseId) -> bool) {
        for id in self.ids() {
            let phase = &mut self.phases[id.0];
            if matches!(phase.state, PhaseState::Waiting) && which(id) {
                let outcome = Outcome::Skipped { because: because.clone() };
                phase.state = PhaseState::Over { outcome, ran: None };
                self.left -= 1;
                let _ = self.release_dependents(id);
            }
        }
    }
}

/// Returns whether this outcome aborts the shutdown, in a phase that does not recover. A hard stop does
/// not, because the closing phases must still run.
fn breaks(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Finished | Outcome::Skipped { .. } | Outcome::Cancelled | Outcome::Aborted => {
            false
        }
        Outcome::Failed { .. }
        | Outcome::Panicked { .. }
        | Outcome::TimedOut { .. }
        | Outcome::Abandoned => true,
    }
}

#[cfg(test)]
mod tests;
