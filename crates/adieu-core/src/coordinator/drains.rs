//! The gates that a shutdown closes and drains, and whether a cordon makes them refuse work.

use std::pin::Pin;
use std::sync::Arc;

use super::locks;
use crate::gate::{Gate, State};
use crate::sync::OrderedMutex;
use crate::task::TaskCx;

/// The gates of one shutdown. One lock guards them and the cordon, so that a gate which is added while
/// the process is cordoned refuses work, too.
#[derive(Default)]
pub(super) struct Drains {
    /// The gates of requests, which the lame duck watches.
    requests: Vec<Gate>,
    /// The gates of loops, to which no router sends work.
    loops: Vec<Gate>,
    /// The gates for which tasks were added, and the work before each is closed.
    drained: Vec<Drained>,
    /// Whether `lame-duck = auto` means no lame duck. A configured duration still applies.
    pub(super) at_once: bool,
    /// Whether a cordon makes the gates refuse work. Readiness has its own fact for that.
    pub(super) refuses: bool,
    /// How often the cordon has been changed. A gradual cordon stops when another change overtakes it.
    pub(super) cordon_changes: u64,
    /// The warnings about settings that prevent a drain that were logged.
    pub(super) warned: Warned,
}

/// Each warning is logged once.
#[derive(Default)]
pub(super) struct Warned {
    pub(super) of_requests: bool,
    pub(super) of_actors: bool,
}

/// A gate that the shutdown drains, and the work before it is closed.
pub(super) struct Drained {
    gate: Gate,
    before: WorkBeforeClosing,
}

/// The functions to run before one gate is closed (`Drain::first`). `None` once they have been
/// taken, so that no more can be added.
pub(super) type WorkBeforeClosing = Arc<OrderedMutex<Option<Vec<BeforeClosing>>>>;

pub(super) type BeforeClosing = Box<dyn FnOnce(TaskCx) -> BoxFuture + Send>;
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl Drains ===

impl Drains {
    pub(super) fn add_request_gate(&mut self, gate: &Gate) {
        self.cordon_if_needed(gate);
        self.requests.push(gate.clone());
    }

    pub(super) fn add_loop_gate(&mut self, gate: &Gate) {
        self.cordon_if_needed(gate);
        self.loops.push(gate.clone());
    }

    fn cordon_if_needed(&self, gate: &Gate) {
        if self.refuses {
            gate.cordon();
        }
    }

    /// Makes all gates refuse or admit work.
    pub(super) fn set_refuses(&mut self, refuses: bool) {
        self.refuses = refuses;
        for gate in self.gates() {
            if refuses {
                gate.cordon();
            } else {
                let _ = gate.uncordon();
            }
        }
    }

    /// Returns the gates of requests.
    pub(super) fn requests(&self) -> &[Gate] {
        &self.requests
    }

    /// Returns all gates, those of requests first.
    pub(super) fn gates(&self) -> impl Iterator<Item = &Gate> {
        self.requests.iter().chain(&self.loops)
    }

    /// Returns whether a gate of requests admits work.
    pub(super) fn is_admitting(&self) -> bool {
        self.requests.iter().any(|gate| gate.state() == State::Open)
    }

    pub(super) fn add_drained(&mut self, gate: Gate, before: WorkBeforeClosing) {
        self.drained.push(Drained { gate, before });
    }

    /// Returns the work before this gate is closed; `None` if this shutdown does not drain the gate.
    pub(super) fn work_before_closing(&self, gate: &Gate) -> Option<WorkBeforeClosing> {
        let known = self.drained.iter().find(|drained| drained.gate.same_gate(gate));
        known.map(|drained| Arc::clone(&drained.before))
    }

    /// Takes the work that has not run, to be dropped without the lock.
    pub(super) fn take_drained(&mut self) -> Vec<Drained> {
        std::mem::take(&mut self.drained)
    }
}

/// Returns the list of work before a gate is closed.
pub(super) fn work_before_closing(first: Option<BeforeClosing>) -> WorkBeforeClosing {
    Arc::new(OrderedMutex::new(locks::BEFORE_CLOSING, Some(Vec::from_iter(first))))
}
