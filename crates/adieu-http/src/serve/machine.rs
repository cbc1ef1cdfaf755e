//! Decides when a server moves to its next stage, and which effects the driver carries out then.

use std::time::{Duration, Instant};

use crate::connection::FIRST_REQUEST;
use crate::stage::Stage;

/// How long idle connections stay open after the last request is done, so that requests which were
/// already on their way arrive.
const SETTLE: Duration = Duration::from_millis(10);

/// The state of a server.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    stage: Stage,
    /// Until then, clients that connected just before the listener closed may send a first request.
    first_requests_until: Option<Instant>,
    flush_at: Option<Instant>,
    drop_at: Option<Instant>,
    is_released: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The process has become unready for good.
    Unready,
    /// The application has dropped the server's future, and no shutdown has begun.
    Released,
    /// The shutdown has requested to close the listener.
    Unbind,
    /// The gate is closed and empty.
    Drained,
    /// All remaining work waits for clients that have stopped reading.
    Stalled,
    /// The shutdown has requested to end all connections within this time.
    Stop { within: Duration },
    /// The instant of [`Machine::due`] has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Accept the connections in the kernel's queue, and close the listener.
    CloseListener,
    /// Make the stage known to connections.
    Enter(Stage),
    /// Release the passes that are reserved for first requests: these have not arrived in time.
    ReleaseFirstRequests,
    /// Release these passes before that time, and report the connections.
    CutFirstRequests,
}

// === impl Machine ===

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Serving,
            first_requests_until: None,
            flush_at: None,
            drop_at: None,
            is_released: false,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns whether the server waits for the gate to drain.
    pub(super) fn is_draining(&self) -> bool {
        self.stage == Stage::Unbound && self.flush_at.is_none()
    }

    /// Returns whether the server ends because the application has dropped its future, when its own
    /// requests are done.
    pub(super) fn is_released(&self) -> bool {
        self.is_released && self.first_requests_until.is_none()
    }

    /// Returns when [`Event::Tick`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.first_requests_until, self.flush_at, self.drop_at].into_iter().flatten().min()
    }

    pub(super) fn on(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Unready => self.enter(Stage::WindingDown, &mut effects),
            Event::Released => {
                self.is_released = true;
                self.unbind(now, &mut effects);
            }
            Event::Unbind => self.unbind(now, &mut effects),
            Event::Drained => {
                self.unbind(now, &mut effects);
                if self.stage < Stage::Flushing {
                    self.flush_at.get_or_insert(now + SETTLE);
                }
            }
            Event::Stalled => {
                if self.is_draining() {
                    self.flush(&mut effects);
                }
            }
            Event::Stop { within } => {
                self.unbind(now, &mut effects);
                self.flush(&mut effects);
                let drop_at = now + within;
                self.drop_at = Some(self.drop_at.map_or(drop_at, |at| at.min(drop_at)));
            }
            Event::Tick => self.tick(now, &mut effects),
        }
        effects
    }

    fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.first_requests_until) {
            effects.push(Effect::ReleaseFirstRequests);
        }
        if is_due(&mut self.flush_at) {
            self.flush(effects);
        }
        if is_due(&mut self.drop_at) {
            self.enter(Stage::Dropping, effects);
        }
    }

    fn unbind(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.stage < Stage::Unbound {
            effects.push(Effect::CloseListener);
            self.enter(Stage::Unbound, effects);
            self.first_requests_until = Some(now + FIRST_REQUEST);
        }
    }

    fn flush(&mut self, effects: &mut Vec<Effect>) {
        self.flush_at = None;
        if self.first_requests_until.take().is_some() {
            effects.push(Effect::CutFirstRequests);
        }
        self.enter(Stage::Flushing, effects);
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
