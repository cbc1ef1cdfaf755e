//! Decides which steps start, which starts are cancelled, and which steps may be stopped.
//!
//! The callers record the ends of starts and stops. [`Machine::step`] then returns the effects that
//! follow; an extra call has no effect. The machine reads no clock and uses no runtime.
//!
//! # Invariants
//!
//! 1. A step starts when all earlier waves have started, never before, and at most once.
//! 2. After a failure no step starts.
//! 3. A step is stopped only if it is up, and at most once: the caller that claims it stops it.
//! 4. A step may be stopped when no step is starting and all steps of later waves are down.

use crate::time::{Duration, Instant};

/// An action that the driver carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an effect must be carried out"]
pub(crate) enum Effect {
    /// Call the start. Its timeout elapses at this instant.
    Start(usize, Instant),
    /// Fire the token of the start.
    Cancel(usize),
    /// Abort the start, and join it.
    Abort(usize),
    /// Abandon the start, which blocks its thread.
    GiveUp(usize),
}

/// How a start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartEnd {
    /// The step has started, and must be stopped.
    Up,
    /// The step has started or was skipped, and needs no stop.
    Done,
    /// The start failed.
    Failed,
}

/// Why no further step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// This step failed first.
    Step(usize),
    /// The shutdown has begun, or the future of the start-up was dropped.
    Interrupted,
}

/// Why a start was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    Time,
    Halt,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    waves: Vec<Vec<usize>>,
    wave_of: Vec<usize>,
    timeouts: Vec<Duration>,
    grace: Duration,
    steps: Vec<State>,
    /// The number of waves that have begun.
    begun: usize,
    halt: Option<Halt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    // Waiting => Starting: its wave's turn has come.
    Starting { due: Instant, pressure: Pressure },
    // Starting => Up, Done or Failed: its start has ended.
    Up,
    Done,
    Failed,
    // Starting => Lost: the start was abandoned, or the start-up was detached. It may still come up.
    Lost,
    // Up => Stopping: the step was claimed.
    Stopping,
    // Stopping => Stopped: its stop has ended, successfully or not.
    Stopped,
}

/// The escalation that a start has reached: cancelled, then aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    None,
    Cancelled(EndCause),
    Aborted(EndCause),
}

// === impl Machine ===

impl Machine {
    pub(crate) fn new(waves: Vec<Vec<usize>>, timeouts: Vec<Duration>, grace: Duration) -> Self {
        let mut wave_of = vec![0; timeouts.len()];
        for (wave, steps) in waves.iter().enumerate() {
            for &step in steps {
                wave_of[step] = wave;
            }
        }
        let steps = vec![State::Waiting; timeouts.len()];
        Self { waves, wave_of, timeouts, grace, steps, begun: 0, halt: None }
    }

    // --- starting ---

    /// Returns the effects that follow from all recorded ends and the time.
    pub(crate) fn step(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.escalate(now, &mut effects);
        // After the escalation, which may have halted start-up.
        while self.may_begin_wave() {
            for &step in &self.waves[self.begun] {
                let due = now + self.timeouts[step];
                self.steps[step] = State::Starting { due, pressure: Pressure::None };
                effects.push(Effect::Start(step, due));
            }
            self.begun += 1;
        }
        effects
    }

    /// Returns when `step` must be called at the latest.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let due = |state: &State| match state {
            State::Starting { due, .. } => Some(*due),
            State::Waiting
            | State::Up
            | State::Done
            | State::Failed
            | State::Lost
            | State::Stopping
            | State::Stopped => None,
        };
        self.steps.iter().filter_map(due).min()
    }

    /// Returns whether this start has exceeded its timeout without having been cancelled, because its
    /// thread was blocked.
    pub(crate) fn is_late(&self, step: usize, now: Instant) -> bool {
        matches!(
            self.steps[step],
            State::Starting { due, pressure: Pressure::None } if now > due
        )
    }

    /// Records that a start has ended.
    pub(crate) fn ended(&mut self, now: Instant, step: usize, end: StartEnd) {
        let is_late = self.is_late(step, now);
        match (self.steps[step], end) {
            (State::Starting { .. } | State::Lost, StartEnd::Up) => self.steps[step] = State::Up,
            (State::Starting { .. }, StartEnd::Done) => self.steps[step] = State::Done,
            (State::Starting { .. }, StartEnd::Failed) => self.steps[step] = State::Failed,
            _ => return,
        }
        if is_late || end == StartEnd::Failed {
            self.halt(Halt::Step(step));
        }
    }

    /// Halts start-up, unless all steps have started.
    pub(crate) fn interrupt(&mut self) {
        if !self.is_settled() {
            self.halt(Halt::Interrupted);
        }
    }

    /// Records that the future of the start-up was dropped. Starts in progress may still come up.
    pub(crate) fn detach(&mut self) {
        self.interrupt();
        for state in &mut self.steps {
            if matches!(state, State::Starting { .. }) {
                *state = State::Lost;
            }
        }
    }

    /// Returns whether no step is starting and none will start.
    pub(crate) fn is_settled(&self) -> bool {
        let over = self.begun == self.waves.len() || self.halt.is_some();
        over && !self.steps.iter().any(|state| matches!(state, State::Starting { .. }))
    }

    /// Returns why start-up was halted; `None` if it was not.
    pub(crate) fn halted(&self) -> Option<Halt> {
        self.halt
    }

    /// Returns why this start was cancelled, if it was.
    pub(crate) fn end_cause(&self, step: usize) -> Option<EndCause> {
        let State::Starting { pressure, .. } = self.steps[step] else { return None };
        match pressure {
            Pressure::None => None,
            Pressure::Cancelled(why) | Pressure::Aborted(why) => Some(why),
        }
    }

    pub(crate) fn is_starting(&self, step: usize) -> bool {
        matches!(self.steps[step], State::Starting { .. })
    }

    /// Halts start-up. The first cause counts.
    fn halt(&mut self, halt: Halt) {
        self.halt.get_or_insert(halt);
    }

    fn may_begin_wave(&self) -> bool {
        let busy = |state: &State| matches!(state, State::Starting { .. });
        self.halt.is_none() && self.begun < self.waves.len() && !self.steps.iter().any(busy)
    }

    /// Escalates starts that are due: cancel, abort and abandon, a grace apart.
    fn escalate(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        // First the starts whose timeout has elapsed, because that halts start-up.
        for step in 0..self.steps.len() {
            let State::Starting { due, pressure } = self.steps[step] else { continue };
            if due > now {
                continue;
            }
            let next = match pressure {
                Pressure::None => {
                    self.halt(Halt::Step(step));
                    effects.push(Effect::Cancel(step));
                    Pressure::Cancelled(EndCause::Time)
                }
                Pressure::Cancelled(why) => {
                    effects.push(Effect::Abort(step));
                    Pressure::Aborted(why)
                }
                Pressure::Aborted(_) => {
                    effects.push(Effect::GiveUp(step));
                    self.steps[step] = State::Lost;
                    continue;
                }
            };
            self.steps[step] = State::Starting { due: now + self.grace, pressure: next };
        }
        if self.halt.is_none() {
            return;
        }
        for step in 0..self.steps.len() {
            if let State::Starting { pressure: Pressure::None, .. } = self.steps[step] {
                let pressure = Pressure::Cancelled(EndCause::Halt);
                self.steps[step] = State::Starting { due: now + self.grace, pressure };
                effects.push(Effect::Cancel(step));
            }
        }
    }

    // --- stopping ---

    /// Returns whether the step may be stopped, or is not up and needs no stop.
    pub(crate) fn may_stop(&self, step: usize) -> bool {
        let later = || self.waves[self.wave_of[step] + 1..].iter().flatten();
        self.is_settled() && (!self.is_up(step) || later().all(|&later| self.is_down(later)))
    }

    /// Claims the step in order to stop it. Returns false if there is nothing to stop, or the step was
    /// already claimed.
    pub(crate) fn claim(&mut self, step: usize) -> bool {
        let claimed = self.steps[step] == State::Up;
        if claimed {
            self.steps[step] = State::Stopping;
        }
        claimed
    }

    /// Records that a stop has ended, successfully or not.
    pub(crate) fn stopped(&mut self, step: usize) {
        if self.steps[step] == State::Stopping {
            self.steps[step] = State::Stopped;
        }
    }

    pub(crate) fn is_up(&self, step: usize) -> bool {
        self.steps[step] == State::Up
    }

    /// Returns whether the start was abandoned or detached, and may still come up.
    pub(crate) fn is_lost(&self, step: usize) -> bool {
        self.steps[step] == State::Lost
    }

    /// Returns whether the step needs no stop.
    pub(crate) fn is_down(&self, step: usize) -> bool {
        match self.steps[step] {
            State::Waiting => self.is_settled(),
            State::Starting { .. } | State::Up | State::Stopping => false,
            State::Done | State::Failed | State::Lost | State::Stopped => true,
        }
    }

    pub(crate) fn all_down(&self) -> bool {
        (0..self.steps.len()).all(|step| self.is_down(step))
    }
}

#[cfg(test)]
mod tests;
