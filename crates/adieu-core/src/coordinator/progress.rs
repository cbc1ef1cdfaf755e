//! The progress of the shutdown that every handle can see and wait for: stage, report, readiness.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::await_error::AwaitError;
use crate::outcome::Ending;
use crate::readiness::{Facts, Readiness};
use crate::report::Report;
use crate::status::Stage;

/// Publishes the [`State`]. Its lock is a leaf: the closures that read or change the state lock nothing.
pub(super) struct Progress {
    state: watch::Sender<State>,
    /// Fires when the shutdown begins.
    begun: CancellationToken,
}

/// The facts that are judged together, so they are published together.
pub(super) struct State {
    pub(super) stage: Stage,
    report: Option<Arc<Report>>,
    /// How often the shutdown has been resumed.
    generation: u64,
    /// Why there will be no report, if the driver was dropped or has panicked.
    lost: Option<AwaitError>,
    facts: Facts,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new() -> Self {
        let state = State {
            stage: Stage::Up,
            report: None,
            generation: 0,
            lost: None,
            facts: Facts::default(),
        };
        Self { state: watch::Sender::new(state), begun: CancellationToken::new() }
    }

    // --- the stage ---

    pub(super) fn stage(&self) -> Stage {
        self.state.borrow().stage
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Returns the token that fires when the shutdown begins.
    pub(super) fn begun(&self) -> &CancellationToken {
        &self.begun
    }

    /// Publishes that the shutdown has begun. `keeps_ready`: readiness does not change yet.
    pub(super) fn begin(&self, keeps_ready: bool) {
        self.state.send_modify(|state| {
            state.stage = Stage::ShuttingDown;
            state.facts.keeps_ready = keeps_ready;
        });
        self.begun.cancel();
    }

    /// Returns to the stage `ShuttingDown` if the shutdown was aborted. Returns false otherwise.
    pub(super) fn resume(&self) -> bool {
        self.state.send_if_modified(|state| {
            let aborted = |report: &Arc<Report>| matches!(report.outcome, Ending::Aborted { .. });
            let can = state.stage == Stage::Over && state.report.as_ref().is_some_and(aborted);
            if can {
                state.stage = Stage::ShuttingDown;
                state.generation += 1;
            }
            can
        })
    }

    pub(super) fn generation(&self) -> u64 {
        self.state.borrow().generation
    }

    // --- the report ---

    pub(super) fn report(&self) -> Option<Arc<Report>> {
        self.state.borrow().report()
    }

    /// Publishes the report: all phases are over.
    pub(super) fn finish(&self, report: Arc<Report>) {
        self.state.send_modify(|state| {
            state.stage = Stage::Over;
            state.report = Some(report);
        });
    }

    /// Changes a report that has been published. Futures that have returned it keep the old one.
    pub(super) fn amend_report(&self, amend: impl FnOnce(&mut Report)) {
        self.state.send_if_modified(|state| {
            if let Some(report) = &mut state.report {
                amend(Arc::make_mut(report));
            }
            false
        });
    }

    /// Publishes that there will be no report: the driver of this generation was dropped.
    pub(super) fn lose(&self, generation: u64, why: AwaitError) {
        self.state.send_if_modified(|state| {
            let lost = state.stage == Stage::ShuttingDown && state.generation == generation;
            if lost {
                state.lost.get_or_insert(why);
            }
            lost
        });
    }

    // --- readiness ---

    pub(super) fn change_facts<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> Option<T> {
        let mut changed = None;
        self.state.send_modify(|state| changed = Some(change(&mut state.facts)));
        changed
    }

    pub(super) fn read_facts<T>(&self, read: impl FnOnce(&Facts) -> T) -> T {
        read(&self.state.borrow().facts)
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.state.borrow().readiness()
    }

    pub(super) fn is_cordoned(&self) -> bool {
        self.state.borrow().facts.cordoned
    }

    pub(super) async fn until_readiness(&self, wanted: impl Fn(Readiness) -> bool) -> Readiness {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| wanted(state.readiness())).await;
        // The sender is `self`, so the wait cannot have failed.
        reached.map_or(Readiness::Stopping, |state| state.readiness())
    }
}

// === impl State ===

impl State {
    pub(super) fn readiness(&self) -> Readiness {
        self.facts.readiness(self.stage)
    }

    /// Returns the report, or why there will be none; `None` if there may still be one.
    pub(super) fn settled(&self) -> Option<Result<Arc<Report>, AwaitError>> {
        self.report().map(Ok).or(self.lost.map(Err))
    }

    fn report(&self) -> Option<Arc<Report>> {
        self.report.clone().filter(|_| self.stage == Stage::Over)
    }
}
