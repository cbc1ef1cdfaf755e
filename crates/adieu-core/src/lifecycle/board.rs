//! The state that starting and stopping share: how far each step is, its stop hook, and the failures.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::error::{StepAction, StepError, StepFailure};
use super::graph::Graph;
use super::hook::{StartKind, Started, StopHook};
use super::machine::{Effect, EndCause, Machine, StartEnd};
use crate::budget::GRACE;
use crate::names::joined;
use crate::sync::lock;
use crate::task::BoxError;
use crate::time::{Instant, now};

pub(super) struct Board {
    pub(super) graph: Graph,
    machine: watch::Sender<Machine>,
    /// The stop hooks of the steps that are up.
    stops: Mutex<Vec<Option<StopHook>>>,
    failures: Mutex<Failures>,
}

/// The failures so far.
#[derive(Default)]
struct Failures {
    all: Vec<(usize, StepError)>,
    /// Failures of loops, which belong to no step.
    loops: Vec<StepError>,
}

/// Held while a step is being stopped. Dropping it marks the step as stopped.
pub(super) struct Stopping<'a> {
    board: &'a Board,
    step: usize,
    ended: bool,
}

// === impl Board ===

impl Board {
    pub(super) fn new(graph: Graph) -> Self {
        let machine = Machine::new(graph.waves.clone(), graph.start_timeouts.clone(), GRACE);
        let stops = Mutex::new(graph.ids.iter().map(|_| None).collect());
        Self { graph, machine: watch::Sender::new(machine), stops, failures: Mutex::default() }
    }

    pub(super) fn id(&self, step: usize) -> Arc<str> {
        Arc::clone(&self.graph.ids[step])
    }

    pub(super) fn steps(&self) -> std::ops::Range<usize> {
        0..self.graph.ids.len()
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Machine) -> T) -> T {
        read(&self.machine.borrow())
    }

    /// Waits until the condition holds. Level-triggered.
    pub(super) async fn until(&self, is: impl Fn(&Machine) -> bool) {
        // The sender is `self`, so the wait cannot fail.
        let _ = self.machine.subscribe().wait_for(|machine| is(machine)).await;
    }

    // --- starting ---

    /// Advances the machine. Returns its effects, when it is due next, and whether it is settled.
    pub(super) fn step(&self, now: Instant) -> (Vec<Effect>, Option<Instant>, bool) {
        let mut followed = (Vec::new(), None, false);
        self.machine.send_modify(|machine| {
            followed = (machine.step(now), machine.next_due(), machine.is_settled());
        });
        followed
    }

    pub(super) fn interrupt(&self) {
        self.machine.send_modify(Machine::interrupt);
    }

    pub(super) fn detach(&self) {
        self.machine.send_modify(Machine::detach);
    }

    /// Records how a start has ended: `Err` with the message if it panicked, `None` if it was dropped.
    /// Returns the reason if the step was skipped.
    pub(super) fn start_ended(
        &self,
        step: usize,
        ended: Option<Result<Result<Started, BoxError>, Arc<str>>>,
    ) -> Option<Arc<str>> {
        let (end, stop, skipped, mut failure) = match ended {
            Some(Ok(Ok(Started(StartKind::Up(Some(stop)))))) => {
                (StartEnd::Up, Some(stop), None, None)
            }
            Some(Ok(Ok(Started(StartKind::Up(None))))) => (StartEnd::Done, None, None, None),
            Some(Ok(Ok(Started(StartKind::Skipped(why))))) => {
                (StartEnd::Done, None, Some(why), None)
            }
            Some(Ok(Err(error))) => {
                (StartEnd::Failed, None, None, Some(StepFailure::Failed(error.into())))
            }
            Some(Err(message)) => {
                (StartEnd::Failed, None, None, Some(StepFailure::Panicked(message)))
            }
            None => (StartEnd::Failed, None, None, Some(StepFailure::Cancelled)),
        };
        // The stop hook is stored first, so that a task that sees the step up finds its hook.
        lock(&self.stops)[step] = stop;
        let now = now();
        self.machine.send_modify(|machine| {
            // A start that ends after its timeout has timed out, whatever it returns. Its result is
            // dropped outside the lock.
            let failure = match machine.end_cause(step) {
                Some(EndCause::Time) => {
                    Some(StepFailure::TimedOut(self.graph.start_timeouts[step]))
                }
                None if machine.is_late(step, now) => {
                    Some(StepFailure::TimedOut(self.graph.start_timeouts[step]))
                }
                Some(EndCause::Halt) => failure.take(),
                None if machine.is_starting(step) => failure.take(),
                // The start was abandoned, and that has been recorded.
                None => None,
            };
            if let Some(failure) = failure {
                self.record_failure(step, StepAction::Start, failure);
            }
            machine.ended(now, step, end);
        });
        skipped
    }

    // --- stopping ---

    /// Claims the step in order to stop it. Returns `None` if there is nothing to stop, or the step
    /// was already claimed.
    pub(super) fn claim(&self, step: usize) -> Option<(StopHook, Stopping<'_>)> {
        let mut claimed = false;
        // Wakes no waiter: none waits for this transition. A task woken here would be queued on
        // this thread, and would be stuck there if the stop hook then blocks it.
        self.machine.send_if_modified(|machine| {
            claimed = machine.claim(step);
            false
        });
        let stopping = claimed.then(|| Stopping { board: self, step, ended: false })?;
        let stop = lock(&self.stops)[step].take();
        stop.map(|stop| (stop, stopping))
    }

    /// Describes what the stop of a step is waiting for.
    pub(super) fn describe(&self, step: usize) -> String {
        self.read(|machine| {
            let later = self.graph.after(step).filter(|&later| !machine.is_down(later));
            let later: Vec<&Arc<str>> = later.map(|later| &self.graph.ids[later]).collect();
            match () {
                () if !machine.is_settled() => "start-up to end".into(),
                () if machine.is_up(step) && later.is_empty() => "its turn".into(),
                () if machine.is_up(step) => format!("{} to stop", joined(&later, ", ")),
                () => "its stop".into(),
            }
        })
    }

    // --- failures ---

    pub(super) fn record_failure(&self, step: usize, action: StepAction, failure: StepFailure) {
        let error = StepError { name: self.id(step), action, failure };
        lock(&self.failures).all.push((step, error));
    }

    pub(super) fn record_loop_failure(&self, name: Arc<str>, failure: StepFailure) {
        lock(&self.failures).loops.push(StepError { name, action: StepAction::EndLoop, failure });
    }

    /// Returns the failure of this step's stop.
    pub(super) fn stop_failure(&self, step: usize) -> Option<StepFailure> {
        let failures = lock(&self.failures);
        let of_stop =
            |(at, error): &&(usize, StepError)| *at == step && error.action == StepAction::Stop;
        failures.all.iter().find(of_stop).map(|(_, error)| error.failure.clone())
    }

    /// Removes and returns all failures: that of the start of `cause`, and the others.
    pub(super) fn take_failures(
        &self,
        cause: Option<usize>,
    ) -> (Option<StepError>, Vec<StepError>) {
        let Failures { mut all, loops } = std::mem::take(&mut *lock(&self.failures));
        let is_cause = |(step, error): &(usize, StepError)| {
            Some(*step) == cause && error.action == StepAction::Start
        };
        let first = all.iter().position(is_cause).map(|at| all.remove(at).1);
        let others = all.into_iter().map(|(_, error)| error).chain(loops).collect();
        (first, others)
    }
}

// === impl Stopping ===

impl Stopping<'_> {
    /// Records how the stop has ended.
    pub(super) fn ended(mut self, failure: Option<StepFailure>) {
        self.ended = true;
        if let Some(failure) = failure {
            self.board.record_failure(self.step, StepAction::Stop, failure);
        }
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.board.record_failure(self.step, StepAction::Stop, StepFailure::Cancelled);
        }
        self.board.machine.send_modify(|machine| machine.stopped(self.step));
    }
}
