//! Decides which steps start, which are told to let go, and which may be stopped.
//!
//! What has ended is noted in it by whoever knows; [`Machine::step`] then says what follows, and
//! calling it once too often does no harm. It knows no clock and no runtime.
//!
//! # Invariants
//!
//! 1. A step starts when all waves before its own have started, never before, and at most once.
//! 2. Once something has gone wrong nothing starts any more.
//! 3. A step is stopped only if it is up, and at most once: who claims it stops it.
//! 4. A step may be stopped when nothing starts any more and all of later waves is down.

use crate::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an effect that nobody runs is a step that never starts"]
pub(crate) enum Effect {
    /// Call its start. Its time is up at this instant.
    Start(usize, Instant),
    /// Fire its token.
    Cancel(usize),
    /// Abort its start, and join it.
    Abort(usize),
    /// Its start could not be ended: leave it.
    GiveUp(usize),
}

/// How a start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartEnd {
    /// There is something to stop.
    Up,
    /// There is nothing to stop.
    Done,
    /// It failed.
    Failed,
}

/// Why no more is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// This step failed first.
    Step(usize),
    /// Somebody has told us to end.
    Interrupted,
}

/// Why a start is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
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
    /// How many waves have been let start.
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
    // Starting => Lost: it could not be ended, or nobody looks after it any more. It may still
    // come up.
    Lost,
    // Up => Stopping: somebody has claimed it.
    Stopping,
    // Stopping => Stopped: its stop has ended, however.
    Stopped,
}

/// How hard a start has been pressed to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    None,
    Cancelled(Because),
    Aborted(Because),
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

    /// What follows from all that has been noted.
    pub(crate) fn step(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.press(now, &mut effects);
        // After the pressing, which may have halted it.
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

    /// When `step` must be called at the latest.
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

    /// Whether this start is over its time, and has not been pressed: its thread was blocked.
    pub(crate) fn is_late(&self, step: usize, now: Instant) -> bool {
        matches!(
            self.steps[step],
            State::Starting { due, pressure: Pressure::None } if now > due
        )
    }

    /// Notes that a start has ended.
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

    /// Notes that nothing is to be started any more. Too late if all has started.
    pub(crate) fn interrupt(&mut self) {
        if !self.is_settled() {
            self.halt(Halt::Interrupted);
        }
    }

    /// Notes that nobody looks after the starts any more.
    pub(crate) fn gone(&mut self) {
        self.interrupt();
        for state in &mut self.steps {
            if matches!(state, State::Starting { .. }) {
                *state = State::Lost;
            }
        }
    }

    /// Whether nothing starts, now or later.
    pub(crate) fn is_settled(&self) -> bool {
        let over = self.begun == self.waves.len() || self.halt.is_some();
        over && !self.steps.iter().any(|state| matches!(state, State::Starting { .. }))
    }

    /// Why no more is started; `None` if all is well.
    pub(crate) fn halted(&self) -> Option<Halt> {
        self.halt
    }

    /// Why this start is made to end, if it is.
    pub(crate) fn pressed(&self, step: usize) -> Option<Because> {
        let State::Starting { pressure, .. } = self.steps[step] else { return None };
        match pressure {
            Pressure::None => None,
            Pressure::Cancelled(why) | Pressure::Aborted(why) => Some(why),
        }
    }

    pub(crate) fn is_starting(&self, step: usize) -> bool {
        matches!(self.steps[step], State::Starting { .. })
    }

    /// The first one counts.
    fn halt(&mut self, halt: Halt) {
        self.halt.get_or_insert(halt);
    }

    fn may_begin_wave(&self) -> bool {
        let busy = |state: &State| matches!(state, State::Starting { .. });
        self.halt.is_none() && self.begun < self.waves.len() && !self.steps.iter().any(busy)
    }

    /// Presses starts one step harder, a grace apart: cancel, abort, give up.
    fn press(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        // First those whose time is up, which halts the others.
        for step in 0..self.steps.len() {
            let State::Starting { due, pressure } = self.steps[step] else { continue };
            if due > now {
                continue;
            }
            let next = match pressure {
                Pressure::None => {
                    self.halt(Halt::Step(step));
                    effects.push(Effect::Cancel(step));
                    Pressure::Cancelled(Because::Time)
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
                let pressure = Pressure::Cancelled(Because::Halt);
                self.steps[step] = State::Starting { due: now + self.grace, pressure };
                effects.push(Effect::Cancel(step));
            }
        }
    }

    // --- stopping ---

    /// Whether the step's turn to be stopped has come, or never will because it is not up.
    pub(crate) fn may_stop(&self, step: usize) -> bool {
        let later = || self.waves[self.wave_of[step] + 1..].iter().flatten();
        self.is_settled() && (!self.is_up(step) || later().all(|&later| self.is_down(later)))
    }

    /// Takes on to stop the step. False if there is nothing to stop, or somebody else has.
    pub(crate) fn claim(&mut self, step: usize) -> bool {
        let claimed = self.steps[step] == State::Up;
        if claimed {
            self.steps[step] = State::Stopping;
        }
        claimed
    }

    /// Notes that a stop has ended, however.
    pub(crate) fn stopped(&mut self, step: usize) {
        if self.steps[step] == State::Stopping {
            self.steps[step] = State::Stopped;
        }
    }

    pub(crate) fn is_up(&self, step: usize) -> bool {
        self.steps[step] == State::Up
    }

    /// Whether its start was left, and may still come up.
    pub(crate) fn is_lost(&self, step: usize) -> bool {
        self.steps[step] == State::Lost
    }

    /// Whether there is nothing of the step to stop.
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
