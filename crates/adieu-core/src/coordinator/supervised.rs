//! What a supervisor may see of the shutdown, and where it is told from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Shutdown;
use super::moves::Moves;
use super::shared::{Shared, State};
use crate::gate::Gate;
use crate::readiness::Readiness;
use crate::status::{Stage, Status};
use crate::sync::lock;
use crate::time::Short;

/// What can be seen of the shutdown at one time.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) readiness: Readiness,
    pub(crate) stage: Stage,
    pub(crate) moves: Moves,
    /// How many passes are inside gates that nobody can enter any more.
    pub(crate) inside: usize,
    /// The phases that are waited for; none if no shutdown waits for anything.
    pub(crate) phases: BTreeSet<String>,
    /// What is waited for, and how much time is left.
    pub(crate) waiting_for: String,
    pub(crate) left: Duration,
}

/// Waits until there is something else to see.
pub(crate) struct Lookout {
    state: watch::Receiver<State>,
    moves: watch::Receiver<Moves>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Where to tell it from.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.shared().home().or_else(|| Handle::try_current().ok())
    }

    /// A lookout, for the first who asks.
    pub(crate) fn lookout(&self) -> Option<Lookout> {
        let shared: &Arc<Shared> = self.shared();
        let is_first = |moves: &mut Moves| !std::mem::replace(&mut moves.are_watched, true);
        let (state, moves) = (shared.watch(), shared.moves.subscribe());
        shared.moves.send_if_modified(is_first).then_some(Lookout { state, moves })
    }
}

// === impl Shared ===

impl Shared {
    /// Looks. Tasks are asked what they wait for, so not under a lock.
    pub(crate) fn look(&self) -> Seen {
        let (stage, readiness, moves) = (self.stage(), self.readiness(), *self.moves.borrow());
        let status = (stage == Stage::ShuttingDown).then(|| self.status());
        let left = status.as_ref().map_or(Duration::ZERO, |status| status.remaining);
        let line = |status: &Status| {
            let until_cut = Short(status.until_cut().unwrap_or_default());
            format!("{}, {until_cut} left", status.waiting_line())
        };
        let waiting_for = status.as_ref().map_or_else(String::new, line);
        let waiting = status.into_iter().flat_map(|status| status.waiting_for);
        let phases = waiting.map(|waiting| waiting.phase).collect();
        let inside = inside_closed(&self.gates) + inside_closed(&self.loops);
        Seen { readiness, stage, moves, inside, phases, waiting_for, left }
    }
}

fn inside_closed(gates: &Mutex<Vec<Gate>>) -> usize {
    lock(gates).iter().filter(|gate| gate.is_closed()).map(Gate::in_flight).sum()
}

// === impl Lookout ===

impl Lookout {
    /// Waits until stage or readiness is another, at once; or something has begun or ended, after
    /// a while in which more may. Returns at once when the shutdown is gone.
    pub(crate) async fn until_other_than(&mut self, seen: &Seen, gathers: Duration) {
        let changed = self
            .state
            .wait_for(|state| (state.stage, state.readiness()) != (seen.stage, seen.readiness));
        let moved = async {
            tokio::time::sleep(gathers).await;
            self.moves.wait_for(|moves| *moves != seen.moves).await
        };
        tokio::select! {
            _ = changed => {}
            _ = moved => {}
        }
    }
}
