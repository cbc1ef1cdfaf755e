//! Starts steps: carries out the effects of the machine, and joins the tasks that it has spawned.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::board::Board;
use super::context::StartCx;
use super::error::{StartError, StepAction, StepFailure};
use super::hook::{StartHook, Started};
use super::isolated::Isolated;
use super::machine::{Effect, Halt, Machine};
use super::profile::DeploymentProfile;
use super::stop;
use super::{Lifecycle, Parts};
use crate::background::OwnedLoops;
use crate::coordinator::Shutdown;
use crate::deadline::Deadline;
use crate::journal::PROGRESS_INTERVAL;
use crate::names::joined;
use crate::reason::Reason;
use crate::status::Stage;
use crate::task::{BoxError, caught};
use crate::time::{Instant, Short, now};

/// The starts that are in progress.
struct Starting {
    board: Arc<Board>,
    /// The handle that the steps get.
    shutdown: Shutdown,
    runtime: Handle,
    hooks: Vec<Option<StartHook>>,
    set: JoinSet<()>,
    handles: Vec<Option<AbortHandle>>,
    tokens: Vec<CancellationToken>,
    next_progress_line: Instant,
}

/// A start that is in progress. If it is dropped before it has ended, it was aborted.
struct Unended {
    board: Arc<Board>,
    step: usize,
    ended: bool,
}

pub(super) async fn start(lifecycle: Lifecycle, shutdown: &Shutdown) -> Result<(), StartError> {
    let Parts { graph, hooks, profile, warnings } = lifecycle.parts;
    // First of all, so that the process is not ready until this promise is kept.
    let promise = shutdown.add_promise("start-up");
    let current = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
    let runtime = shutdown.shared().home().unwrap_or(current);
    if shutdown.stage() != Stage::Up {
        return Err(StartError::ShuttingDown);
    }
    for warning in warnings {
        shutdown.shared().journal().log(move || warn!(warning, "state not shared by the fleet"));
    }
    if profile == DeploymentProfile::Serverless {
        shutdown.shared().drain_at_once();
    }
    let (board, loops) = (Arc::new(Board::new(graph)), Arc::<OwnedLoops>::default());
    let tasks = stop::register(shutdown, &board).map_err(|error| match shutdown.stage() {
        Stage::Up => error,
        Stage::ShuttingDown | Stage::Over => StartError::ShuttingDown,
    })?;

    let began = now();
    let owner = shutdown.owned_by(&loops);
    Starting::new(&board, owner, hooks, runtime.clone()).drive().await;

    let halted = board.read(Machine::halted);
    let outcome = match halted {
        None => Ok(()),
        Some(_) if shutdown.stage() != Stage::Up => {
            // The shutdown stops the steps in its own phase, because running work may need them.
            tokio::select! {
                () = board.until(Machine::all_down) => {}
                _ = shutdown.completed() => {}
            }
            Err(failed(&board, halted, shutdown))
        }
        Some(_) => {
            stop::roll_back(&board, &loops, &runtime).await;
            Err(failed(&board, halted, shutdown))
        }
    };
    // A step that is not up needs no stop, unless it may still come up.
    for (step, task) in tasks.into_iter().enumerate() {
        if board.read(|machine| machine.is_down(step) && !machine.is_lost(step)) {
            task.cancel();
        }
    }
    outcome?;
    if profile == DeploymentProfile::Serverless {
        for running in loops.all() {
            let name = running.name();
            let advice = "mark the step that adds it as long-running";
            shutdown
                .shared()
                .journal()
                .log(move || warn!(name = &*name, advice, "loop needs a process that lives on"));
        }
    }
    let (steps, took) = (board.steps().len(), Short(now().saturating_duration_since(began)));
    shutdown.shared().journal().log(move || info!(steps, %took, "started up"));
    promise.keep();
    shutdown.mark_started();
    Ok(())
}

fn failed(board: &Board, halted: Option<Halt>, shutdown: &Shutdown) -> StartError {
    let cause = match halted {
        Some(Halt::Step(step)) => Some(step),
        Some(Halt::Interrupted) | None => None,
    };
    match board.take_failures(cause) {
        (Some(cause), others) => StartError::Failed { cause, others },
        (None, others) => {
            let reason = shutdown.reason().unwrap_or(Reason::Unknown);
            StartError::Interrupted { reason, others }
        }
    }
}

// === impl Starting ===

impl Starting {
    fn new(board: &Arc<Board>, shutdown: Shutdown, hooks: Vec<StartHook>, runtime: Handle) -> Self {
        Self {
            board: Arc::clone(board),
            shutdown,
            runtime,
            handles: hooks.iter().map(|_| None).collect(),
            tokens: hooks.iter().map(|_| CancellationToken::new()).collect(),
            hooks: hooks.into_iter().map(Some).collect(),
            set: JoinSet::new(),
            next_progress_line: now() + PROGRESS_INTERVAL,
        }
    }

    /// Starts wave after wave, until all steps have started or start-up has been halted.
    async fn drive(mut self) {
        let begun = self.shutdown.token();
        loop {
            // Checked before a wave begins: after the shutdown has begun, no step starts.
            let interrupted = begun.is_cancelled();
            if interrupted {
                self.board.interrupt();
            }
            let (effects, due, settled) = self.board.step(now());
            for effect in effects {
                self.carry_out(effect);
            }
            if settled {
                return;
            }
            let due = due.map_or(self.next_progress_line, |due| due.min(self.next_progress_line));
            tokio::select! {
                biased;
                () = begun.cancelled(), if !interrupted => {}
                Some(_) = self.set.join_next() => {}
                () = tokio::time::sleep_until(due.into()) => self.log_progress(),
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(step, due) => self.start(step, due),
            Effect::Cancel(step) => self.tokens[step].cancel(),
            Effect::Abort(step) => {
                if let Some(handle) = &self.handles[step] {
                    handle.abort();
                }
            }
            Effect::GiveUp(step) => {
                self.board.record_failure(step, StepAction::Start, StepFailure::Abandoned)
            }
        }
    }

    fn start(&mut self, step: usize, due: Instant) {
        let Some(hook) = self.hooks[step].take() else { return };
        let cx = StartCx {
            step: self.board.id(step),
            shutdown: self.shutdown.clone(),
            deadline: Deadline::at(due),
            token: self.tokens[step].clone(),
        };
        let (shutdown, id) = (self.shutdown.clone(), self.board.id(step));
        let unended = Unended { board: Arc::clone(&self.board), step, ended: false };
        let work = async move {
            let ended = caught(hook.start(cx)).await;
            // Recorded here, not by the task that joins it, which may have been dropped: the step is
            // up in any case.
            if let Some(why) = unended.ended(ended) {
                let skipped = move || info!(step = &*id, why = &*why, "step skipped");
                shutdown.shared().journal().log(skipped);
            }
        };
        let name = format!("start {}", self.board.id(step));
        let hook = Isolated::new(&name, &self.runtime, work);
        self.handles[step] = Some(self.set.spawn_on(
            async {
                let _ = hook.await;
            },
            &self.runtime,
        ));
    }

    fn log_progress(&mut self) {
        if now() < self.next_progress_line {
            return;
        }
        self.next_progress_line = now() + PROGRESS_INTERVAL;
        let starting: Vec<Arc<str>> = self.board.read(|machine| {
            let starting = self.board.steps().filter(|&step| machine.is_starting(step));
            starting.map(|step| self.board.id(step)).collect()
        });
        let steps = joined(&starting, ", ");
        self.shutdown.shared().journal().log(move || info!(steps, "still starting"));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // If the future of the start was dropped, the shutdown stops the steps that are up.
        self.board.detach();
    }
}

// === impl Unended ===

impl Unended {
    fn ended(mut self, ended: Result<Result<Started, BoxError>, Arc<str>>) -> Option<Arc<str>> {
        self.ended = true;
        self.board.start_ended(self.step, Some(ended))
    }
}

impl Drop for Unended {
    fn drop(&mut self) {
        if !self.ended {
            self.board.start_ended(self.step, None);
        }
    }
}
