//! Adds loops to a shutdown: starts them, and registers the tasks that end them.

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
    /// Starts a loop on the shutdown's runtime, and returns its gate.
    ///
    /// When the loop fails or panics, it is called again after a pause; see
    /// [`Backoff`](crate::Backoff). When it returns without an error, it has ended for good.
    ///
    /// The loop is signalled at two levels; see [`LoopCx`]. *Take no more* comes in
    /// [`Phase::SERVICE_UNBIND`], and also while the process is cordoned. *Stop now* comes in
    /// [`Phase::SERVICE_STOP`], or when the window of [`Phase::SERVICE_REQUESTS_DONE`] has elapsed. If
    /// the loop has not ended in [`Phase::BEFORE_CLUSTER_SHUTDOWN`], it is aborted, joined and
    /// reported there. If that phase is skipped, this happens in
    /// [`Phase::BEFORE_ACTOR_SYSTEM_TERMINATE`]. When the last handle of the shutdown is dropped, the
    /// loop is aborted.
    ///
    /// Not for loops whose work comes through routers, because no lame duck waits for a loop. Use
    /// [`Shutdown::add_gate`] for those.
    ///
    /// # Errors
    ///
    /// If there is no runtime, or as [`Shutdown::add_task`]. The loop has not begun then.
    #[track_caller]
    pub fn add_loop<F, Fut>(&self, spec: impl Into<LoopSpec>, f: F) -> Result<Gate, AddLoopError>
    where
        F: FnMut(LoopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.keep(&spec.into(), Function(f))
    }

    /// Starts a loop that takes jobs from a source and runs several at a time. Returns its gate.
    ///
    /// `connect` creates the source, and is called again after each failure of the source. `handle`
    /// runs one job; if it fails or panics, other jobs are not affected. To end, the consumer takes no
    /// more jobs, returns the jobs that it has not begun, finishes the others, commits, and leaves. A
    /// job that does not finish is signalled to stop, and aborted when one second of the consumer's
    /// time remains, or half of it if it is shorter; see [`Source::on_interrupted`].
    ///
    /// [`Shutdown::add_loop`] describes in which phases this happens.
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

    /// Starts a loop that calls `tick` periodically. Returns its gate.
    ///
    /// A tick that fails or panics is logged, and the next one comes as usual. If gates have closed, no
    /// further tick comes, and the report contains the failure. When the loop must take
    /// no more work, a running tick is finished and no further tick starts. When it must stop, the
    /// tick is signalled. While the process is cordoned, no tick starts. [`Shutdown::add_loop`]
    /// describes in which phases this happens.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_loop`]; also if the period is zero or longer than one year.
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
        gate.set_is_loop();
        let keeper = Keeper::new(work, spec, gate.clone(), self.shared());
        let (ending, begin) = keeper.spawn(&home);
        let (ending, mut added) = (Arc::new(ending), Vec::new());
        if let Err(source) = self.add_ending(&gate, &ending, &mut added) {
            // All tasks or none. The loop has not begun, and ends when its sender is dropped.
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
        let unreported = {
            let ending = Arc::downgrade(&ending);
            move || ending.upgrade()?.unreported()
        };
        self.shared().account_for(Arc::clone(name), unreported);
        if let Some(owner) = self.owner() {
            owner.add(&ending);
        }
        // This fails only if the runtime was dropped.
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
        // For a hard stop, which skips the earlier phases.
        added.push(self.add_task(
            Phase::BEFORE_ACTOR_SYSTEM_TERMINATE,
            end,
            async move |cx: TaskCx| ending.join(cx).await,
        )?);
        Ok(())
    }
}
