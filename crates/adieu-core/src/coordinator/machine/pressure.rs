//! Makes tasks end: when their time is up, after a repeated signal, and when the deadline becomes
//! earlier.
//!
//! Tasks are escalated in three steps, one grace apart: cancel, abort, abandon. All tasks of a
//! phase are escalated together, except tasks with a shorter timeout than their phase.

use std::cmp::Reverse;

use super::{Cause, Effect, Effects, Machine, PhaseState, Pressure, TaskId, TaskState, Timer};
use crate::outcome::Outcome;
use crate::plan::{PhaseId, Rank};
use crate::rung::Rung;
use crate::time::{Duration, Instant};

impl Machine {
    pub(super) fn tick(&mut self, now: Instant, effects: &mut Effects) {
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if at > now {
                return;
            }
            self.timers.pop();
            if self.due_of(timer) != Some(at) {
                continue; // It was replaced, or is no longer needed.
            }
            match timer {
                Timer::Phase(id) => self.escalate_phase(now, id, Cause::Time, effects),
                Timer::Task(id) => self.escalate_task(now, id, effects),
            }
        }
    }

    /// Escalates the tasks of a phase by one step: cancel, then abort, then abandon.
    fn escalate_phase(&mut self, now: Instant, id: PhaseId, cause: Cause, effects: &mut Effects) {
        let phase = &mut self.phases[id.0];
        let tasks = phase.tasks.clone();
        match phase.pressure {
            Pressure::None => {
                phase.pressure = Pressure::Cancelled;
                effects.push(Effect::CancelPhase(id));
                for task in &mut self.tasks[tasks] {
                    if matches!(task.state, TaskState::Running) {
                        task.state = TaskState::Cancelling(cause);
                        task.follow_phase();
                    }
                }
            }
            Pressure::Cancelled => {
                phase.pressure = Pressure::Aborted;
                for task in tasks {
                    if let TaskState::Cancelling(cause) = self.tasks[task].state {
                        self.tasks[task].state = TaskState::Aborting(cause);
                        self.tasks[task].follow_phase();
                        effects.push(Effect::Abort(TaskId(task)));
                    }
                }
            }
            Pressure::Aborted => {
                phase.due = None;
                for task in tasks {
                    self.give_up(now, TaskId(task), effects);
                }
                return;
            }
        }
        self.set_phase_due(id, now + self.limits.grace);
    }

    /// Does the same for a task that has a timeout of its own.
    fn escalate_task(&mut self, now: Instant, id: TaskId, effects: &mut Effects) {
        let task = &mut self.tasks[id.0];
        match task.state {
            TaskState::Running => {
                task.state = TaskState::Cancelling(Cause::Time);
                effects.push(Effect::CancelTask(id));
            }
            TaskState::Cancelling(cause) => {
                task.state = TaskState::Aborting(cause);
                effects.push(Effect::Abort(id));
            }
            TaskState::Aborting(_) => return self.give_up(now, id, effects),
            TaskState::Over { .. } => return,
        }
        self.set_task_due(id, now + self.limits.grace);
    }

    fn give_up(&mut self, now: Instant, id: TaskId, effects: &mut Effects) {
        let task = &self.tasks[id.0];
        if !matches!(task.state, TaskState::Over { .. }) {
            let took = now.saturating_duration_since(self.started(task).unwrap_or(now));
            self.end_task(now, id, Outcome::Abandoned, took, effects);
        }
    }

    pub(super) fn due_of(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Phase(id) => self.phases[id.0].due,
            Timer::Task(id) => self.tasks[id.0].own.as_ref().and_then(|own| own.due),
        }
    }

    pub(super) fn set_phase_due(&mut self, id: PhaseId, at: Instant) {
        self.phases[id.0].due = Some(at);
        self.timers.push(Reverse((at, Timer::Phase(id))));
    }

    pub(super) fn set_task_due(&mut self, id: TaskId, at: Instant) {
        if let Some(own) = &mut self.tasks[id.0].own {
            own.due = Some(at);
            self.timers.push(Reverse((at, Timer::Task(id))));
        }
    }

    pub(super) fn climb(&mut self, now: Instant, rung: Rung, effects: &mut Effects) {
        if rung <= self.rung {
            return;
        }
        self.rung = rung;
        effects.push(Effect::EndWaiting);
        if rung < Rung::HardStop {
            return;
        }
        // An operator who stops hard expects that no more work is admitted.
        effects.push(Effect::CloseGates);
        // Before the deadline is shortened, so that these tasks do not count as timed out.
        for id in self.running() {
            let phase = &self.phases[id.0];
            if phase.rank == Rank::Early && phase.pressure == Pressure::None {
                effects.push(Effect::Cut(id, now));
                self.escalate_phase(now, id, Cause::HardStop, effects);
            }
        }
        // Early phases that wait are skipped when they become ready, not now. The phases that they wait
        // for still run, and no phase may start before those are over.
        self.shorten(now, now + self.limits.reserve, effects);
    }

    pub(super) fn shorten(&mut self, now: Instant, deadline: Instant, effects: &mut Effects) {
        if deadline >= self.limits.deadline {
            return;
        }
        self.limits.shorten(now, deadline);
        for id in self.running() {
            self.hasten(now, id);
            self.cut_sooner(now, id, effects);
        }
    }

    /// Stores a longer worst case of the phases after an open-ended one, which then has less time.
    pub(super) fn leave_time(
        &mut self,
        now: Instant,
        id: PhaseId,
        rest: Duration,
        effects: &mut Effects,
    ) {
        let known = &mut self.phases[id.0].time.rest;
        if known.is_some_and(|known| known < rest) {
            *known = Some(rest);
            self.cut_sooner(now, id, effects);
        }
    }

    /// Cancels a running phase earlier, if its time is now up earlier.
    fn cut_sooner(&mut self, now: Instant, id: PhaseId, effects: &mut Effects) {
        let PhaseState::Running { since, cut } = self.phases[id.0].state else { return };
        let sooner = self.cut(now, id, since).max(now);
        if sooner >= cut || self.phases[id.0].pressure != Pressure::None {
            return;
        }
        self.phases[id.0].state = PhaseState::Running { since, cut: sooner };
        self.set_phase_due(id, sooner);
        effects.push(Effect::Cut(id, sooner));
    }

    /// Shortens the grace of cancelled and aborted tasks to the grace of the new deadline.
    fn hasten(&mut self, now: Instant, id: PhaseId) {
        let soon = now + self.limits.grace;
        let phase = &self.phases[id.0];
        if phase.pressure != Pressure::None && phase.due.is_some_and(|due| due > soon) {
            self.set_phase_due(id, soon);
        }
        for task in self.phases[id.0].tasks.clone().map(TaskId) {
            let run = &self.tasks[task.0];
            let is_escalated =
                matches!(run.state, TaskState::Cancelling(_) | TaskState::Aborting(_));
            let due = run.own.as_ref().and_then(|own| own.due);
            if is_escalated && due.is_some_and(|due| due > soon) {
                self.set_task_due(task, soon);
            }
        }
    }

    fn running(&self) -> Vec<PhaseId> {
        let is_running =
            |id: &PhaseId| matches!(self.phases[id.0].state, PhaseState::Running { .. });
        self.ids().filter(is_running).collect()
    }
}
