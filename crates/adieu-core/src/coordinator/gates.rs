//! Adds the tasks that close and drain a gate to the phases where that belongs.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Shutdown;
use super::drains::{BeforeClosing, WorkBeforeClosing, work_before_closing};
use super::task_handle::TaskHandle;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::phase::Phase;
use crate::task::{AddTaskError, Detail, TaskCx, TaskSpec};

/// The timeout of the tasks that close a gate and that cut off its work. Both are quick. A short timeout
/// leaves more of the deadline to the phases that need it.
const CLOSING: Duration = Duration::from_secs(2);

/// How long work that was cut off has to record its name.
const NAMING: Duration = Duration::from_millis(100);
/// How long work has to leave a gate that nothing has drained, before it is cut. Work of the class
/// `CloseNow` ends when the gate closes, which may be only now.
const LEAVING: Duration = Duration::from_millis(100);
/// How long before the end of its time a gate is closed although the work before it has not ended.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// How long a worker may take to poll a task. If it takes longer, all workers are blocked.
const POLLED: Duration = Duration::from_millis(100);

/// How a gate is drained; see [`Shutdown::drain`]. For most gates, a reference to the gate is enough.
#[must_use = "it does nothing until it is given to `Shutdown::drain`"]
pub struct Drain {
    gate: Gate,
    first: Option<BeforeClosing>,
}

// === impl Drain ===

impl Drain {
    /// Drains this gate.
    pub fn of(gate: &Gate) -> Self {
        Self { gate: gate.clone(), first: None }
    }

    /// Runs `f` before the gate is closed, in the same phase, for example to accept queued connections.
    ///
    /// It has two seconds. If it does not end in time, the gate is closed without it.
    pub fn first<F, Fut>(mut self, f: F) -> Self
    where
        F: FnOnce(TaskCx) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.first = Some(Box::new(|cx| Box::pin(f(cx))));
        self
    }
}

impl From<&Gate> for Drain {
    fn from(gate: &Gate) -> Self {
        Self::of(gate)
    }
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").field("gate", &self.gate).finish_non_exhaustive()
    }
}

// === impl Shutdown ===

impl Shutdown {
    /// Makes a gate that this shutdown closes and drains; see [`Shutdown::drain`].
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`].
    #[track_caller]
    pub fn add_gate(&self, name: impl Into<Arc<str>>) -> Result<Gate, AddTaskError> {
        let gate = Gate::new(name);
        self.drain(&gate)?;
        Ok(gate)
    }

    /// Closes the gate in [`Phase::SERVICE_UNBIND`], waits in [`Phase::SERVICE_REQUESTS_DONE`] until
    /// all admitted work has left, and cuts off the remaining work in [`Phase::SERVICE_STOP`].
    ///
    /// The first gate also adds a lame duck to [`Phase::BEFORE_SERVICE_UNBIND`]: the process is not
    /// ready, but still admits work, so that routers can move away. See `lame-duck` in
    /// [`config`](crate::config).
    ///
    /// A gate that is drained already is not drained twice. The work of [`Drain::first`] is added to the
    /// work that is known.
    ///
    /// Admitted work may drain for the time of [`Phase::SERVICE_REQUESTS_DONE`], the window. It is the
    /// time that the deadline leaves beyond the reserve and the worst case of the later phases, unless
    /// `drain-timeout` is set; see [`config`](crate::config). For example, with `kill-after = 30s` and
    /// one task in `close-resources`, 27 s are available. The reserve takes 3 s, `service-stop` 2 s,
    /// `close-resources` 5 s and graces 1.2 s. The window is 15.8 s, less the lame duck. If no work is
    /// inside, the window ends at once. When it expires, the report names the remaining work.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`]. The gate is then not drained by this shutdown.
    #[track_caller]
    pub fn drain(&self, drain: impl Into<Drain>) -> Result<(), AddTaskError> {
        let drain = drain.into();
        let gate = drain.gate.clone();
        let known = self.shared().drains.lock().work_before_closing(&gate);
        if let Some(before) = known {
            return self.drain_more(drain, &before);
        }
        let mut added = Vec::from_iter(self.add_lame_duck()?);
        if let Err(error) = self.add_drain(drain, &mut added) {
            // All tasks or none.
            for task in added {
                task.cancel();
            }
            return Err(error);
        }
        self.shared().drains.lock().add_request_gate(&gate);
        Ok(())
    }

    /// Adds work before a gate is closed that is drained already.
    fn drain_more(&self, drain: Drain, before: &WorkBeforeClosing) -> Result<(), AddTaskError> {
        let Drain { gate, first } = drain;
        if let Some(before) = &mut *before.lock() {
            before.extend(first);
            return Ok(());
        }
        let task = format!("close {}", gate.name()).into();
        let error = AddTaskError::TooLate { task, phase: Phase::SERVICE_UNBIND };
        self.note_refusal(&error);
        Err(error)
    }

    /// Adds the tasks that drain a gate, up to the first that cannot be added.
    #[track_caller]
    pub(crate) fn add_drain(
        &self,
        drain: impl Into<Drain>,
        added: &mut Vec<TaskHandle>,
    ) -> Result<(), AddTaskError> {
        let Drain { gate, first } = drain.into();
        let before = work_before_closing(first);
        added.push(self.add_closing(&gate, &before)?);
        added.push(self.add_draining(&gate)?);
        added.push(self.add_cutting(&gate)?);
        self.shared().drains.lock().add_drained(gate, before);
        Ok(())
    }

    #[track_caller]
    fn add_closing(
        &self,
        gate: &Gate,
        before: &WorkBeforeClosing,
    ) -> Result<TaskHandle, AddTaskError> {
        let task = TaskSpec::new(format!("close {}", gate.name())).timeout(CLOSING).only_waits();
        let (gate, before) = (gate.clone(), Arc::clone(before));
        let shared = Arc::downgrade(self.shared());
        self.add_task(Phase::SERVICE_UNBIND, task, async move |cx: TaskCx| {
            let before = before.lock().take().unwrap_or_default();
            let home = shared.upgrade().and_then(|shared| shared.home());
            if !before.is_empty() {
                do_before(before, home.unwrap_or_else(Handle::current), cx, &gate).await;
            }
            gate.close();
        })
    }

    #[track_caller]
    fn add_draining(&self, gate: &Gate) -> Result<TaskHandle, AddTaskError> {
        // The remaining work is described as of the end of the window, because it leaves when it is cut.
        let left = Arc::new(OnceLock::new());
        let task = TaskSpec::new(format!("drain {}", gate.name())).only_waits().describe({
            let (gate, left) = (gate.clone(), Arc::clone(&left));
            move || left.get().cloned().unwrap_or_else(|| gate.summary())
        });
        let (gate, shared) = (gate.clone(), Arc::downgrade(self.shared()));
        self.add_task(Phase::SERVICE_REQUESTS_DONE, task, async move |cx: TaskCx| {
            // Closed already, unless the shutdown began at a later phase.
            gate.close();
            gate.set_window(cx.phase_cut());
            tokio::select! {
                _ = gate.drained(cx.shutdown_deadline()) => {
                    // Also stored as the detail: if the time is up just now, the error is lost.
                    gate.report_cut_off().inspect_err(|cut| {
                        left.get_or_init(|| cut.clone());
                    })
                }
                () = cx.cancelled() => {
                    if let Some(shared) = shared.upgrade() {
                        left.get_or_init(|| summary_of(&gate, shared.journal()));
                    }
                    gate.cut_and_report();
                    Ok(())
                }
            }
        })
    }

    #[track_caller]
    fn add_cutting(&self, gate: &Gate) -> Result<TaskHandle, AddTaskError> {
        let left = Arc::new(OnceLock::new());
        let task =
            TaskSpec::new(format!("cut {}", gate.name())).timeout(CLOSING).only_waits().describe({
                let left = Arc::clone(&left);
                move || left.get().cloned().unwrap_or_default()
            });
        let (gate, shared) = (gate.clone(), Arc::downgrade(self.shared()));
        self.add_task(Phase::SERVICE_STOP, task, async move |cx: TaskCx| {
            let leaves = async |within| {
                let left = gate.drained(cx.shutdown_deadline());
                let _ = tokio::time::timeout(within, left).await;
            };
            if !gate.cut_token().is_cancelled() {
                // Nothing has waited for this work: its phase is disabled, or was skipped.
                gate.close();
                leaves(LEAVING).await;
                if let Some(shared) = shared.upgrade().filter(|_| !gate.is_drained()) {
                    left.get_or_init(|| summary_of(&gate, shared.journal()));
                }
            }
            if !gate.is_drained() {
                gate.cut();
                // Work with a name that is cut off records its name when it leaves.
                if !gate.oldest(1).is_empty() {
                    leaves(NAMING).await;
                }
            }
            gate.report_cut_off()
        })
    }
}

/// Runs the work before a gate is closed on the application's runtime, and closes the gate without it
/// when there is no time left.
async fn do_before(before: Vec<BeforeClosing>, home: Handle, cx: TaskCx, gate: &Gate) {
    let mut all = JoinSet::new();
    for first in before {
        let cx = cx.clone();
        all.spawn_on(async move { first(cx).await }, &home);
    }
    let left = cx.remaining();
    let ended = tokio::time::timeout(left - LAST_LOOK.min(left / 2), end_of(&mut all)).await;
    if ended.is_ok() {
        return;
    }
    gate.close();
    // If the runtime does not poll even an empty task, all workers are blocked, and the functions
    // could not run. Let them finish later: the next phase waits for the work that they admit.
    let looked = tokio::time::timeout(POLLED, home.spawn(async {})).await;
    if looked.is_ok() {
        tokio::select! {
            () = end_of(&mut all) => {}
            () = cx.cancelled() => {}
        }
    } else {
        all.detach_all();
    }
}

/// Describes the work inside a gate in one line. Labels are code of the application, which may block.
fn summary_of(gate: &Gate, journal: &Journal) -> String {
    let count = format!("{} in flight", gate.in_flight());
    let gate = gate.clone();
    journal.describe_now(&Detail::new(Arc::new(move || gate.summary()), count))
}

/// Waits until all have ended. If one of them panics, the waiting task panics, too.
async fn end_of(all: &mut JoinSet<()>) {
    while let Some(ended) = all.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
