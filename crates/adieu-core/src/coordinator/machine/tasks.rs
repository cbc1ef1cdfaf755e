//! How the outcome of a task follows from its end and from the pressure on it.

use std::sync::Arc;

use super::{Cause, Effect, Effects, Machine, PhaseState, TaskState};
use crate::outcome::Outcome;
use crate::task::{Ended, TaskId};
use crate::time::{Duration, Instant};

/// The error of a task whose runtime was dropped before the task was over.
const RUNTIME_GONE: &str =
    "its runtime was dropped before it was over; keep the runtime until the shutdown is over";

// === impl Machine ===

impl Machine {
    pub(super) fn join(
        &mut self,
        now: Instant,
        id: TaskId,
        at: Instant,
        ended: Ended,
        effects: &mut Effects,
    ) {
        let task = &self.tasks[id.0];
        if let TaskState::Over { outcome: Outcome::Abandoned, .. } = task.state {
            // It was given up before it ended. What it returns may be the only account of lost work.
            effects.extend(late_error(id, &ended));
            return;
        }
        let PhaseState::Running { since, cut } = self.phases[task.phase.0].state else {
            return;
        };
        let cut = task.own.as_ref().map_or(cut, |own| own.cut.min(cut));
        let cause = match task.state {
            TaskState::Over { .. } => return,
            // It ended too late, and has blocked the driver, which should have cancelled it.
            TaskState::Running if at > cut => Some(Cause::Time),
            TaskState::Running => None,
            TaskState::Cancelling(Cause::Time) | TaskState::Aborting(Cause::Time) if at < cut => {
                None // It ended in time, but the driver learned of it later.
            }
            TaskState::Cancelling(cause) | TaskState::Aborting(cause) => Some(cause),
        };
        if cause == Some(Cause::Time) {
            effects.extend(late_error(id, &ended)); // The outcome does not contain it.
        }
        let outcome = match (cause, ended) {
            (_, Ended::LeftBehind) => Outcome::Abandoned,
            (Some(Cause::Time), _) => {
                Outcome::TimedOut { after: cut.saturating_duration_since(since) }
            }
            (None, Ended::Finished) => Outcome::Finished,
            (Some(Cause::HardStop), Ended::Finished) => Outcome::Cancelled,
            (_, Ended::Failed(error)) => Outcome::Failed { error },
            (_, Ended::Panicked(message)) => Outcome::Panicked { message },
            (Some(Cause::HardStop), Ended::Aborted) => Outcome::Aborted,
            // The machine did not abort it, so it was dropped with its runtime.
            (None, Ended::Aborted) => Outcome::Failed { error: RUNTIME_GONE.into() },
        };
        let took = at.saturating_duration_since(since);
        self.end_task(now, id, outcome, took, effects);
    }

    pub(super) fn end_task(
        &mut self,
        now: Instant,
        id: TaskId,
        outcome: Outcome,
        took: Duration,
        effects: &mut Effects,
    ) {
        if !outcome.is_clean() {
            effects.push(Effect::TaskFailed(id));
        }
        let task = &mut self.tasks[id.0];
        task.state = TaskState::Over { outcome, took };
        task.follow_phase();
        let phase = task.phase;
        self.phases[phase.0].running -= 1;
        if self.phases[phase.0].running == 0 {
            self.close(now, phase, effects);
        }
    }
}

/// Returns the effect that keeps the error of a task whose time was up when it returned.
fn late_error(id: TaskId, ended: &Ended) -> Option<Effect> {
    let error = match ended {
        Ended::Failed(error) => Arc::clone(error),
        Ended::Panicked(message) => format!("panicked: {message}").into(),
        Ended::Finished | Ended::Aborted | Ended::LeftBehind => return None,
    };
    Some(Effect::LateError(id, error))
}
