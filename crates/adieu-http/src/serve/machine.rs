//! How far a server is, and what follows from it. Decides; the driver does.

use std::time::{Duration, Instant};

use super::stage::Stage;
use crate::connection::FRESH;

/// How long idle connections are left open after the last request is done: what had been sent
/// before that has then been heard of.
const SETTLE: Duration = Duration::from_millis(10);

/// How far a server is.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    stage: Stage,
    /// Until then, who came just before the listener closed may ask its first question.
    fresh_until: Option<Instant>,
    part_at: Option<Instant>,
    drop_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The process is not ready any more, for good.
    Unready,
    /// The shutdown wants the listener closed.
    Unbind,
    /// The gate is closed, and nobody is inside.
    Drained,
    /// All work that is left waits for clients that have stopped reading.
    Stalled,
    /// The shutdown wants an end, in this time.
    Stop { within: Duration },
    /// Time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Take in what is queued, and close the listener.
    CloseListener,
    /// Connections are to know.
    Enter(Stage),
    /// Let the first-comers that have not spoken go.
    ForgetFresh,
}

// === impl Machine ===

impl Machine {
    pub(super) fn new() -> Self {
        Self { stage: Stage::Serving, fresh_until: None, part_at: None, drop_at: None }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether it matters that the gate is drained.
    pub(super) fn waits_for_drain(&self) -> bool {
        self.stage == Stage::Closing && self.part_at.is_none()
    }

    /// When to come back with [`Event::Tick`].
    pub(super) fn due(&self) -> Option<Instant> {
        [self.fresh_until, self.part_at, self.drop_at].into_iter().flatten().min()
    }

    pub(super) fn on(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Unready => self.enter(Stage::WindingDown, &mut effects),
            Event::Unbind => self.unbind(now, &mut effects),
            Event::Drained => {
                self.unbind(now, &mut effects);
                if self.stage < Stage::Parting {
                    self.part_at.get_or_insert(now + SETTLE);
                }
            }
            Event::Stalled => {
                if self.waits_for_drain() {
                    self.part(&mut effects);
                }
            }
            Event::Stop { within } => {
                self.unbind(now, &mut effects);
                self.part(&mut effects);
                let drop_at = now + within;
                self.drop_at = Some(self.drop_at.map_or(drop_at, |at| at.min(drop_at)));
            }
            Event::Tick => self.tick(now, &mut effects),
        }
        effects
    }

    fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.fresh_until) {
            effects.push(Effect::ForgetFresh);
        }
        if is_due(&mut self.part_at) {
            self.part(effects);
        }
        if is_due(&mut self.drop_at) {
            self.enter(Stage::Dropping, effects);
        }
    }

    fn unbind(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.stage < Stage::Closing {
            effects.push(Effect::CloseListener);
            self.enter(Stage::Closing, effects);
            self.fresh_until = Some(now + FRESH);
        }
    }

    fn part(&mut self, effects: &mut Vec<Effect>) {
        self.part_at = None;
        if self.fresh_until.take().is_some() {
            effects.push(Effect::ForgetFresh);
        }
        self.enter(Stage::Parting, effects);
    }

    fn enter(&mut self, stage: Stage, effects: &mut Vec<Effect>) {
        if self.stage < stage {
            self.stage = stage;
            effects.push(Effect::Enter(stage));
        }
    }
}

#[cfg(test)]
mod tests;
