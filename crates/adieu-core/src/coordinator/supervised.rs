//! The view of a shutdown that a supervisor gets.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Shutdown;
use super::progress::State;
use super::progress_counts::ProgressCounts;
use super::shared::Shared;
use crate::gate::Gate;
use crate::readiness::Readiness;
use crate::status::{Stage, Status};
use crate::time::Short;

/// The state of the shutdown at one time.
#[derive(Clone, Debug)]
pub(crate) struct SupervisorView {
    pub(crate) readiness: Readiness,
    pub(crate) stage: Stage,
    pub(crate) counts: ProgressCounts,
    /// How many passes are inside closed gates.
    pub(crate) inside: usize,
    /// The phases with tasks that have not ended; none while no shutdown runs.
    pub(crate) phases: BTreeSet<String>,
    /// The tasks that have not ended, and the time until the first of them is cancelled.
    pub(crate) waiting_for: String,
    pub(crate) left: Duration,
}

/// Waits until the state has changed.
pub(crate) struct SupervisorUpdates {
    state: watch::Receiver<State>,
    counts: watch::Receiver<ProgressCounts>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Returns the runtime from which a supervisor is notified.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.shared().home().or_else(|| Handle::try_current().ok())
    }

    /// Returns the updates of the state, to the first caller only: a process has one supervisor.
    pub(crate) fn updates(&self) -> Option<SupervisorUpdates> {
        let shared = self.shared();
        let is_first =
            |counts: &mut ProgressCounts| !std::mem::replace(&mut counts.has_supervisor, true);
        let (state, counts) = (shared.progress.subscribe(), shared.engine.counts.subscribe());
        shared
            .engine
            .counts
            .send_if_modified(is_first)
            .then_some(SupervisorUpdates { state, counts })
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the current state. Tasks describe themselves for it, so it must not be called under a
    /// lock.
    pub(crate) fn supervisor_view(&self) -> SupervisorView {
        let (stage, readiness) = (self.progress.stage(), self.progress.readiness());
        let counts = *self.engine.counts.borrow();
        let status = (stage == Stage::ShuttingDown).then(|| self.status());
        let left = status.as_ref().map_or(Duration::ZERO, |status| status.remaining);
        let line = |status: &Status| {
            let until_cut = Short(status.until_cut().unwrap_or_default());
            format!("{}, {until_cut} left", status.waiting_line())
        };
        let waiting_for = status.as_ref().map_or_else(String::new, line);
        let waiting = status.into_iter().flat_map(|status| status.waiting_for);
        let phases = waiting.map(|waiting| waiting.phase).collect();
        let drains = self.drains.lock();
        let closed = drains.gates().filter(|gate| gate.is_closed());
        let inside = closed.map(Gate::in_flight).sum();
        SupervisorView { readiness, stage, counts, inside, phases, waiting_for, left }
    }
}

// === impl SupervisorUpdates ===

impl SupervisorUpdates {
    /// Waits until the stage or the readiness differs from `seen`. If only phases have begun or
    /// tasks have ended, waits for `batch_for` first, so that several such changes are reported
    /// together. Returns at once when the shutdown has been dropped.
    pub(crate) async fn changed_since(&mut self, seen: &SupervisorView, batch_for: Duration) {
        let changed = self
            .state
            .wait_for(|state| (state.stage, state.readiness()) != (seen.stage, seen.readiness));
        let moved = async {
            tokio::time::sleep(batch_for).await;
            self.counts.wait_for(|counts| *counts != seen.counts).await
        };
        tokio::select! {
            _ = changed => {}
            _ = moved => {}
        }
    }
}
