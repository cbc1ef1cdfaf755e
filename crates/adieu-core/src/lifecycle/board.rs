//! What everybody sees who starts or stops steps: how far each is, what stops it, what went wrong.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::error::{Act, Problem, StepError};
use super::graph::Graph;
use super::hook::{How, Started, StopHook};
use super::machine::{Because, Effect, Machine, StartEnd};
use crate::budget::GRACE;
use crate::names::joined;
use crate::sync::lock;
use crate::task::BoxError;
use crate::time::{Instant, now};

pub(super) struct Board {
    pub(super) graph: Graph,
    machine: watch::Sender<Machine>,
    /// Of those that are up.
    stops: Mutex<Vec<Option<StopHook>>>,
    wrong: Mutex<Wrong>,
}

/// What went wrong.
#[derive(Default)]
struct Wrong {
    all: Vec<(usize, StepError)>,
    /// With loops, which belong to no step.
    loops: Vec<StepError>,
}

/// Held while a step is being stopped. When it is dropped the step has stopped, however.
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
        Self { graph, machine: watch::Sender::new(machine), stops, wrong: Mutex::default() }
    }

    pub(super) fn id(&self, step: usize) -> Arc<str> {
        Arc::clone(&self.graph.ids[step])
    }

    pub(super) fn steps(&self) -> std::ops::Range<usize> {
        0..self.graph.ids.len()
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.machine.borrow())
    }

    /// Waits until it is so. Level-triggered.
    pub(super) async fn until(&self, is: impl Fn(&Machine) -> bool) {
        // The sender is `self`, so the wait cannot fail.
        let _ = self.machine.subscribe().wait_for(|machine| is(machine)).await;
    }

    // --- starting ---

    /// What is to be done, when there is next something to do, and whether that is all.
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

    pub(super) fn gone(&self) {
        self.machine.send_modify(Machine::gone);
    }

    /// Notes how a start has ended. `Err` with the message if it panicked, `None` if it was dropped.
    /// Returns why, if it was skipped.
    pub(super) fn start_ended(
        &self,
        step: usize,
        ended: Option<Result<Result<Started, BoxError>, Arc<str>>>,
    ) -> Option<Arc<str>> {
        let (end, stop, skipped, mut problem) = match ended {
            Some(Ok(Ok(Started(How::Up(Some(stop)))))) => (StartEnd::Up, Some(stop), None, None),
            Some(Ok(Ok(Started(How::Up(None))))) => (StartEnd::Done, None, None, None),
            Some(Ok(Ok(Started(How::Skipped(why))))) => (StartEnd::Done, None, Some(why), None),
            Some(Ok(Err(error))) => {
                (StartEnd::Failed, None, None, Some(Problem::Failed(error.into())))
            }
            Some(Err(message)) => (StartEnd::Failed, None, None, Some(Problem::Panicked(message))),
            None => (StartEnd::Failed, None, None, Some(Problem::Cancelled)),
        };
        // First what stops it, so that whoever sees it up finds that.
        lock(&self.stops)[step] = stop;
        let now = now();
        self.machine.send_modify(|machine| {
            // Who ends after its time was up has timed out, whatever it says. What it says is then
            // dropped outside the lock.
            let said = match machine.pressed(step) {
                Some(Because::Time) => Some(Problem::TimedOut(self.graph.start_timeouts[step])),
                None if machine.is_late(step, now) => {
                    Some(Problem::TimedOut(self.graph.start_timeouts[step]))
                }
                Some(Because::Halt) => problem.take(),
                None if machine.is_starting(step) => problem.take(),
                // It was given up, and has been spoken of.
                None => None,
            };
            if let Some(said) = said {
                self.went_wrong(step, Act::Start, said);
            }
            machine.ended(now, step, end);
        });
        skipped
    }

    // --- stopping ---

    /// Takes on to stop the step; `None` if there is nothing to stop, or somebody else does.
    pub(super) fn claim(&self, step: usize) -> Option<(StopHook, Stopping<'_>)> {
        let mut claimed = false;
        // Nobody is woken: nobody waits for this, and whom this thread wakes waits for it, if the
        // stop then blocks it.
        self.machine.send_if_modified(|machine| {
            claimed = machine.claim(step);
            false
        });
        let stopping = claimed.then(|| Stopping { board: self, step, ended: false })?;
        let stop = lock(&self.stops)[step].take();
        stop.map(|stop| (stop, stopping))
    }

    /// What a step that is to be stopped is waiting for.
    pub(super) fn describe(&self, step: usize) -> String {
        self.look(|machine| {
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

    // --- what went wrong ---

    pub(super) fn went_wrong(&self, step: usize, act: Act, problem: Problem) {
        let error = StepError { name: self.id(step), act, problem };
        lock(&self.wrong).all.push((step, error));
    }

    pub(super) fn loop_went_wrong(&self, name: Arc<str>, problem: Problem) {
        lock(&self.wrong).loops.push(StepError { name, act: Act::EndLoop, problem });
    }

    /// What went wrong when this step was stopped.
    pub(super) fn stop_problem(&self, step: usize) -> Option<Problem> {
        let wrong = lock(&self.wrong);
        let of_stop = |(at, error): &&(usize, StepError)| *at == step && error.act == Act::Stop;
        wrong.all.iter().find(of_stop).map(|(_, error)| error.problem.clone())
    }

    /// Everything that went wrong: what `cause` did at its start, and all else.
    pub(super) fn take_wrong(&self, cause: Option<usize>) -> (Option<StepError>, Vec<StepError>) {
        let Wrong { mut all, loops } = std::mem::take(&mut *lock(&self.wrong));
        let is_cause =
            |(step, error): &(usize, StepError)| Some(*step) == cause && error.act == Act::Start;
        let first = all.iter().position(is_cause).map(|at| all.remove(at).1);
        let others = all.into_iter().map(|(_, error)| error).chain(loops).collect();
        (first, others)
    }
}

// === impl Stopping ===

impl Stopping<'_> {
    /// Notes how the stop has ended.
    pub(super) fn ended(mut self, problem: Option<Problem>) {
        self.ended = true;
        if let Some(problem) = problem {
            self.board.went_wrong(self.step, Act::Stop, problem);
        }
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.board.went_wrong(self.step, Act::Stop, Problem::Cancelled);
        }
        self.board.machine.send_modify(|machine| machine.stopped(self.step));
    }
}
