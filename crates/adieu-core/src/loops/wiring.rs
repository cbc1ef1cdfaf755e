//! Takes on loops: runs them, and ends them in the phases where that belongs.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::consumer::Consuming;
use super::keeper::Keeper;
use super::periodic::Ticking;
use super::{AddLoopError, Consumer, Function, JobCx, LoopCx, LoopSpec, Periodic, Source, Work};
use crate::background::LoopHandle;
use crate::coordinator::{Shutdown, TaskHandle};
use crate::gate::Gate;
use crate::phase::Phase;
use crate::plan::LONGEST;
use crate::task::{AddTaskError, TaskCx, TaskResult, TaskSpec};

impl Shutdown {
    /// Runs a loop that takes work, from now on, on the shutdown's runtime; and returns its gate.
    ///
    /// When the loop fails or panics it is called again, after a pause; see
    /// [`Backoff`](crate::Backoff). When it returns without an error it has ended for good.
    ///
    /// It is told at two levels; see [`LoopCx`]. *Take no more* comes in
    /// [`Phase::SERVICE_UNBIND`], and for a while when the process is cordoned; *stop now* in
    /// [`Phase::SERVICE_STOP`], or when the window of [`Phase::SERVICE_REQUESTS_DONE`] is over. A
    /// loop that has not ended in [`Phase::BEFORE_CLUSTER_SHUTDOWN`] is aborted, joined and
    /// reported. If that phase is skipped, [`Phase::BEFORE_ACTOR_SYSTEM_TERMINATE`] sees to it. A
    /// loop ends at the latest with the last handle of its shutdown.
    ///
    /// Not for loops that serve routers: no lame duck waits for it. For those, see
    /// [`Shutdown::gate`].
    ///
    /// # Errors
    ///
    /// If there is no runtime to run it on, or as [`Shutdown::add_task`]. It has then not begun.
    #[track_caller]
    pub fn add_loop<F, Fut>(&self, spec: impl Into<LoopSpec>, f: F) -> Result<Gate, AddLoopError>
    where
        F: FnMut(LoopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.keep(&spec.into(), Function(f))
    }

    /// Runs a loop that takes jobs from a source and runs several at a time; and returns its gate.
    ///
    /// `connect` makes the source, again after each failure; `handle` does one job, and may fail or
    /// panic alone. To end, the consumer takes no more, gives back what it has not begun, finishes
    /// what it has, commits, and leaves. What does not finish is told to stop, and aborted with the
    /// last second of its time, or half of it if there is less; see [`Source::on_interrupted`].
    ///
    /// For when this happens see [`Shutdown::add_loop`].
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_loop`].
    #[track_caller]
    pub fn add_consumer<C, Connecting, S, E, H, Handling>(
        &self,
        consumer: Consumer,
        connect: C,
        handle: H,
    ) -> Result<Gate, AddLoopError>
    where
        C: FnMut() -> Connecting + Send + 'static,
        Connecting: Future<Output = Result<S, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
        S: Source,
        H: Fn(Arc<S::Job>, JobCx) -> Handling + Send + Sync + 'static,
        Handling: Future<Output: TaskResult> + Send + 'static,
    {
        let spec = consumer.spec.clone();
        self.keep(&spec, Consuming { consumer, connect, handle: Arc::new(handle) })
    }

    /// Runs `tick` periodically; and returns its gate.
    ///
    /// A tick that fails or panics is logged, and the next one comes as usual. A tick that runs is
    /// finished when no more is to be taken, and told when all is to stop now; while the process is
    /// cordoned there are none. For when this happens see [`Shutdown::add_loop`].
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_loop`]; also if the period is zero or endless.
    #[track_caller]
    pub fn add_periodic<F, Fut>(&self, periodic: Periodic, tick: F) -> Result<Gate, AddLoopError>
    where
        F: FnMut(LoopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        let spec = periodic.spec.clone();
        if periodic.every.is_zero() {
            return Err(AddLoopError::ZeroPeriod { name: spec.name });
        }
        if periodic.every > LONGEST {
            return Err(AddLoopError::EndlessPeriod { name: spec.name });
        }
        self.keep(&spec, Ticking::new(periodic, tick))
    }

    #[track_caller]
    fn keep(&self, spec: &LoopSpec, work: impl Work) -> Result<Gate, AddLoopError> {
        let name = &spec.name;
        if name.trim().is_empty() {
            return Err(AddLoopError::EmptyName);
        }
        let Some(home) = self.shared().home().or_else(|| Handle::try_current().ok()) else {
            return Err(AddLoopError::NoRuntime { name: Arc::clone(name) });
        };
        let gate = Gate::new(Arc::clone(name));
        let keeper = Keeper::new(work, spec, gate.clone(), self.shared());
        let (ending, begin) = keeper.spawn(&home);
        let (ending, mut added) = (Arc::new(ending), Vec::new());
        if let Err(source) = self.add_ending(&gate, &ending, &mut added) {
            // All or none. The loop has not been told to begin.
            for task in added {
                task.cancel();
            }
            let is_late = matches!(source, AddTaskError::TooLate { .. });
            let error = AddLoopError::Task { name: Arc::clone(name), source };
            if is_late {
                self.note_refusal(&error);
            }
            return Err(error);
        }
        self.shared().add_loop_gate(&gate);
        if let Some(owner) = self.owner() {
            owner.add(&ending);
        }
        // If it is gone already, so is the runtime.
        let _ = begin.send(());
        Ok(gate)
    }

    #[track_caller]
    fn add_ending(
        &self,
        gate: &Gate,
        ending: &Arc<LoopHandle>,
        added: &mut Vec<TaskHandle>,
    ) -> Result<(), AddTaskError> {
        let (name, ending) = (gate.name(), Arc::clone(ending));
        let describe = |verb: &str| {
            let ending = Arc::clone(&ending);
            TaskSpec::new(format!("{verb} {name}")).only_waits().describe(move || ending.summary())
        };
        self.add_drain(gate, added)?;
        let (leave, end) = (describe("leave"), describe("end"));
        added.push(self.add_task(Phase::BEFORE_CLUSTER_SHUTDOWN, leave, {
            let ending = Arc::clone(&ending);
            async move |cx: TaskCx| ending.join(cx).await
        })?);
        // For a hard stop, which skips all that comes before.
        added.push(self.add_task(
            Phase::BEFORE_ACTOR_SYSTEM_TERMINATE,
            end,
            async move |cx: TaskCx| ending.join(cx).await,
        )?);
        Ok(())
    }
}
