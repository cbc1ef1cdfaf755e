//! Stops steps: as tasks of the shutdown, or in a rollback when start-up has failed.
//!
//! In both cases each step has a task that waits for its turn and then stops it, so the order is the
//! same. If the shutdown and a rollback race for a step, the first to claim it stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Lifecycle;
use super::board::Board;
use super::context::StopCx;
use super::error::{StartError, StepAction, StepFailure};
use super::hook::StopHook;
use super::isolated::Isolated;
use super::machine::Machine;
use crate::background::OwnedLoops;
use crate::budget::GRACE;
use crate::coordinator::{AddPhaseError, Shutdown, TaskHandle, WeakShutdown, WorkSource};
use crate::deadline::Deadline;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::PlanError;
use crate::task::{BoxError, TaskCx, TaskSpec, caught};
use crate::time::{Duration, now};

/// How long loops have to end in a rollback: as long as the phase in which the shutdown ends them.
const END_LOOPS: Duration = Duration::from_secs(5);

/// Adds a task for each step to the shutdown, all or none.
pub(super) fn register(
    shutdown: &Shutdown,
    board: &Arc<Board>,
) -> Result<Vec<TaskHandle>, StartError> {
    add_phase(shutdown, board.graph.stop_budget(|_| true)).map_err(StartError::NoPhase)?;
    let phase_began = Arc::new(AtomicBool::new(false));
    let mut added: Vec<TaskHandle> = Vec::new();
    for step in board.steps() {
        let spec = TaskSpec::new(format!("stop {}", board.id(step)))
            .timeout(board.graph.until_stopped(step))
            .only_waits()
            .describe({
                let board = Arc::clone(board);
                move || board.describe(step)
            });
        let (board, shutdown_of_it) = (Arc::clone(board), shutdown.downgrade());
        let phase_began = Arc::clone(&phase_began);
        let task = async move |cx: TaskCx| {
            phase_began.store(true, Ordering::Relaxed);
            match stop(&board, step, home_of(&shutdown_of_it), Some(cx)).await {
                None => Ok(()),
                // Panics again, so that the task is reported as panicked.
                Some(StepFailure::Panicked(message)) => {
                    std::panic::resume_unwind(Box::new(message.to_string()))
                }
                Some(failure) => Err(failure.to_string()),
            }
        };
        match shutdown.add_task(Lifecycle::PHASE, spec, task) {
            Ok(task) => added.push(task),
            Err(error) => {
                for task in added {
                    task.cancel();
                }
                return Err(StartError::NoTask(error));
            }
        }
    }
    // If the phase does not run, no task reports the steps that are up.
    let board = Arc::downgrade(board);
    let source = WorkSource::new("lifecycle").remaining(move || {
        let board = board.upgrade().filter(|_| !phase_began.load(Ordering::Relaxed))?;
        let up = board.steps().filter(|&step| board.read(|machine| machine.is_up(step)));
        let up: Vec<_> = up.map(|step| board.id(step)).collect();
        (!up.is_empty()).then(|| format!("{} not stopped: {}", up.len(), up.join(", ")))
    });
    shutdown.shared().account_for(source);
    Ok(added)
}

/// Returns the application's runtime, on which hooks run. The task that waits for the turn of a step
/// runs on another one.
fn home_of(shutdown: &WeakShutdown) -> Handle {
    let home = shutdown.upgrade().and_then(|shutdown| shutdown.shared().home());
    home.unwrap_or_else(Handle::current)
}

/// Adds the phase in which steps are stopped, or extends its timeout for one more lifecycle. A
/// configured timeout is not changed.
fn add_phase(shutdown: &Shutdown, needed: Duration) -> Result<(), AddPhaseError> {
    let needed = needed.max(GRACE);
    // Declared to come after the actors, because a configuration may have moved `close-resources`.
    let phase = PhaseSpec::new(Lifecycle::PHASE)
        .after(Phase::ACTOR_SYSTEM_TERMINATE)
        .after(Phase::CLOSE_RESOURCES)
        .timeout(needed);
    match shutdown.add_phase(phase) {
        Err(AddPhaseError::Plan(PlanError::DuplicatePhase { .. })) => {
            let known = shutdown.plan().phase(Lifecycle::PHASE).map(|phase| phase.timeout());
            if known < Some(needed)
                && !shutdown.shared().config().sets_timeout_of(&Lifecycle::PHASE)
            {
                shutdown.set_phase_timeout(Lifecycle::PHASE, needed)?;
            }
            Ok(())
        }
        added => added,
    }
}

/// Stops one step when its turn has come. Returns its failure. Does nothing if the step is not up.
async fn stop(
    board: &Board,
    step: usize,
    home: Handle,
    task: Option<TaskCx>,
) -> Option<StepFailure> {
    let time_up = task.as_ref().map_or_else(CancellationToken::new, |task| task.token().clone());
    let its_turn = async {
        // Not before start-up has ended: a step that is starting may come up and need this one.
        board.until(Machine::is_settled).await;
        let most =
            |machine: &Machine| board.graph.before_stop(step, |later| !machine.is_down(later));
        let turn = board.until(|machine| machine.may_stop(step));
        // Steps of later waves whose stops hang have been abandoned by then.
        let _ = tokio::time::timeout(board.read(most), turn).await;
    };
    tokio::select! {
        biased;
        () = its_turn => {}
        () = time_up.cancelled() => return Some(StepFailure::NotReached),
    }
    let Some((hook, stopping)) = board.claim(step) else {
        // The rollback or the shutdown has claimed it first, or there is nothing to stop.
        board.until(|machine| machine.is_down(step)).await;
        return board.stop_failure(step);
    };
    let (timeout, token) = (board.graph.stop_timeouts[step], time_up.child_token());
    let deadline = Deadline::after(timeout);
    let reason = task.as_ref().map(|task| task.reason().clone());
    let cx = StopCx { step: board.id(step), reason, deadline, token, task };
    let ended = run(hook, cx, &home, &time_up).await;
    let is_late = now() > deadline.instant().into_std();
    let failure = match ended {
        StopEnd::Ended(Ok(Ok(()))) if is_late => Some(StepFailure::TimedOut(timeout)),
        StopEnd::Ended(Ok(Ok(()))) => None,
        StopEnd::Ended(Ok(Err(error))) => Some(StepFailure::Failed(error.into())),
        StopEnd::Ended(Err(message)) => Some(StepFailure::Panicked(message)),
        StopEnd::TimedOut => Some(StepFailure::TimedOut(timeout)),
        StopEnd::Abandoned => Some(StepFailure::Abandoned),
    };
    stopping.ended(failure.clone());
    failure
}

/// How a stop ended.
enum StopEnd {
    /// The stop returned, or panicked with this message.
    Ended(Result<Result<(), BoxError>, Arc<str>>),
    /// The stop timed out, and was dropped.
    TimedOut,
    /// The stop timed out, and is still running because it blocks its thread.
    Abandoned,
}

/// Runs a stop within its timeout.
async fn run(hook: StopHook, cx: StopCx, home: &Handle, time_up: &CancellationToken) -> StopEnd {
    let (deadline, token) = (cx.deadline, cx.token.clone());
    let name = format!("stop {}", cx.step);
    let mut work = Isolated::new(&name, home, caught(hook.stop(cx)));
    let ended = tokio::select! {
        biased;
        ended = &mut work => ended,
        () = deadline.passed() => {
            token.cancel();
            // The hook has a grace to clean up. Its result no longer counts.
            let _ = tokio::time::timeout(GRACE, &mut work).await;
            return match work.abort(GRACE).await {
                true => StopEnd::TimedOut,
                false => StopEnd::Abandoned,
            };
        }
        // The shutdown has cancelled the task, and will abort it.
        () = time_up.cancelled() => work.await,
    };
    // Without an output the hook was dropped with its runtime.
    ended.map_or(StopEnd::TimedOut, StopEnd::Ended)
}

/// Ends the loops that steps have added, then stops the steps that have started, in reverse.
pub(super) async fn roll_back(board: &Arc<Board>, loops: &OwnedLoops, runtime: &Handle) {
    let mut ending = JoinSet::new();
    for running in loops.all() {
        let board = Arc::clone(board);
        let end = async move {
            if let Err(error) = running.end_within(END_LOOPS).await {
                board.record_loop_failure(
                    running.name(),
                    StepFailure::Failed(BoxError::from(error).into()),
                );
            }
        };
        ending.spawn_on(end, runtime);
    }
    while ending.join_next().await.is_some() {}

    let mut stopping = JoinSet::new();
    for step in board.steps().filter(|&step| board.read(|machine| machine.is_up(step))) {
        let (board, home) = (Arc::clone(board), runtime.clone());
        stopping.spawn_on(async move { stop(&board, step, home, None).await }, runtime);
    }
    let most = board.read(|machine| board.graph.stop_budget(|step| !machine.is_down(step)));
    let all = async { while stopping.join_next().await.is_some() {} };
    let bound = now() + most + GRACE;
    if tokio::time::timeout_at(bound.into(), all).await.is_err() {
        for step in board.steps().filter(|&step| !board.read(|machine| machine.is_down(step))) {
            board.record_failure(step, StepAction::Stop, StepFailure::Abandoned);
        }
    }
}
