//! Drains gates in the phases where that belongs.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Shutdown;
use super::shared::Shared;
use super::task_handle::TaskHandle;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::phase::Phase;
use crate::sync::lock;
use crate::task::{AddTaskError, Detail, TaskCx, TaskSpec};

/// Doors are closed at once, and telling is quick. That this is so is worth saying, because the
/// time that is not needed for it need not be kept for it.
const CLOSING: Duration = Duration::from_secs(2);

/// How long work that was cut off has to name itself.
const NAMING: Duration = Duration::from_millis(100);
/// How long before its time is up a door is closed that has not been, and how long a worker may then
/// take to poll a task.
const LAST_LOOK: Duration = Duration::from_millis(200);
const POLLED: Duration = Duration::from_millis(100);

/// How a gate is drained; see [`Shutdown::drain`]. A gate alone will do for most.
#[must_use = "it does nothing until it is given to `Shutdown::drain`"]
pub struct Drain {
    gate: Gate,
    first: Option<BeforeClosing>,
}

/// What is to be done before one gate is closed. `None` when it is too late to add to that.
type AllBefore = Arc<Mutex<Option<Vec<BeforeClosing>>>>;

/// A gate that is drained, and what is to be done before it is closed.
pub(super) struct Drained {
    gate: Gate,
    before: AllBefore,
}

type BeforeClosing = Box<dyn FnOnce(TaskCx) -> BoxFuture + Send>;
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl Drain ===

impl Drain {
    /// Drains this gate.
    pub fn of(gate: &Gate) -> Self {
        Self { gate: gate.clone(), first: None }
    }

    /// Runs `f` before the gate is closed, in the same phase: to take in what has been queued, or
    /// to stop taking.
    ///
    /// It has two seconds; if it does not end in time the gate is closed without it.
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
    pub fn gate(&self, name: impl Into<Arc<str>>) -> Result<Gate, AddTaskError> {
        let gate = Gate::new(name);
        self.drain(&gate)?;
        Ok(gate)
    }

    /// Closes the gate in [`Phase::SERVICE_UNBIND`], waits in [`Phase::SERVICE_REQUESTS_DONE`]
    /// until all who are inside have left, and tells who is left in [`Phase::SERVICE_STOP`] that
    /// the window is over.
    ///
    /// With the first gate comes a lame duck in [`Phase::BEFORE_SERVICE_UNBIND`]: not ready, still
    /// admitting, so that routers can move away. See `lame-duck` in [`config`](crate::config).
    ///
    /// A gate that is drained already is not drained twice; what is to be done before it is closed
    /// is added to what there is.
    ///
    /// The window is the time of [`Phase::SERVICE_REQUESTS_DONE`]: what the deadline leaves beyond
    /// the reserve and the worst case of the later phases, unless `drain-timeout` is set; see
    /// [`config`](crate::config). For example, with `kill-after = 30s` and one task in
    /// `close-resources`, of 27 s the reserve takes 3 s, `service-stop` 2 s, `close-resources` 5 s and
    /// graces 1.2 s: the window is 15.8 s, less the lame duck. With nobody inside it ends at once; when it expires, the report
    /// says who was left.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`]. The gate is then not drained by this shutdown.
    #[track_caller]
    pub fn drain(&self, drain: impl Into<Drain>) -> Result<(), AddTaskError> {
        let drain = drain.into();
        let gate = drain.gate.clone();
        if self.shared().is_drained_by(&gate) {
            return self.shared().drain_more(drain);
        }
        let mut added = Vec::from_iter(self.add_lame_duck()?);
        if let Err(error) = self.add_drain(drain, &mut added) {
            // All or none.
            for task in added {
                task.cancel();
            }
            return Err(error);
        }
        self.shared().take_on(&gate, &self.shared().gates);
        Ok(())
    }

    /// Adds the tasks that drain a gate, up to the first that cannot be added.
    #[track_caller]
    pub(crate) fn add_drain(
        &self,
        drain: impl Into<Drain>,
        added: &mut Vec<TaskHandle>,
    ) -> Result<(), AddTaskError> {
        let Drain { gate, first } = drain.into();
        let before: AllBefore = Arc::new(Mutex::new(Some(Vec::from_iter(first))));
        let drained = Drained { gate: gate.clone(), before: Arc::clone(&before) };
        let name = gate.name();
        let close = TaskSpec::new(format!("close {name}")).timeout(CLOSING).only_waits();
        let shared = Arc::downgrade(self.shared());
        added.push(self.add_task(Phase::SERVICE_UNBIND, close, {
            let (gate, shared) = (gate.clone(), shared.clone());
            async move |cx: TaskCx| {
                let before = lock(&before).take().unwrap_or_default();
                let home = shared.upgrade().and_then(|shared| shared.home());
                if !before.is_empty() {
                    do_before(before, home.unwrap_or_else(Handle::current), cx, &gate).await;
                }
                gate.close();
            }
        })?);
        // Who was left is said as of when the window was over: being told makes them leave.
        let left = Arc::new(OnceLock::new());
        let task = TaskSpec::new(format!("drain {name}")).only_waits().describe({
            let (gate, left) = (gate.clone(), Arc::clone(&left));
            move || left.get().cloned().unwrap_or_else(|| gate.summary())
        });
        added.push(self.add_task(Phase::SERVICE_REQUESTS_DONE, task, {
            let gate = gate.clone();
            async move |cx: TaskCx| {
                // Closed already, unless the shutdown began at a later phase.
                gate.close();
                tokio::select! {
                    _ = gate.drained(cx.shutdown_deadline()) => {
                        // Kept as the detail, too: if the time is up just now, the error is lost.
                        gate.report_cut_off().inspect_err(|cut| {
                            left.get_or_init(|| cut.clone());
                        })
                    }
                    () = cx.cancelled() => {
                        if let Some(shared) = shared.upgrade() {
                            left.get_or_init(|| summary_of(&gate, shared.journal()));
                        }
                        gate.cut();
                        Ok(())
                    }
                }
            }
        })?);
        let cut = TaskSpec::new(format!("cut {name}")).timeout(CLOSING).only_waits();
        added.push(self.add_task(Phase::SERVICE_STOP, cut, {
            let gate = gate.clone();
            async move |cx: TaskCx| {
                if !gate.is_drained() {
                    gate.cut();
                    // Work that has a name and is cut names itself as it leaves.
                    if !gate.oldest(1).is_empty() {
                        let left = gate.drained(cx.shutdown_deadline());
                        let _ = tokio::time::timeout(NAMING, left).await;
                    }
                }
                gate.report_cut_off()
            }
        })?);
        lock(&self.shared().drained).push(drained);
        Ok(())
    }
}

// === impl Shared ===

impl Shared {
    fn is_drained_by(&self, gate: &Gate) -> bool {
        lock(&self.drained).iter().any(|drained| drained.gate.is(gate))
    }

    /// It is drained already: once is enough, but not before all have done what they must.
    fn drain_more(&self, drain: Drain) -> Result<(), AddTaskError> {
        let all = lock(&self.drained);
        let known = all.iter().find(|drained| drained.gate.is(&drain.gate));
        let before = known.map(|drained| Arc::clone(&drained.before));
        drop(all);
        match before.as_ref().map(|before| lock(before)).as_deref_mut() {
            Some(Some(before)) => before.extend(drain.first),
            Some(None) | None => {
                let task = format!("close {}", drain.gate.name()).into();
                let error = AddTaskError::TooLate { task, phase: Phase::SERVICE_UNBIND };
                self.note_refusal(&error);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Does on the application's runtime what is to be done before a gate is closed, and closes the
/// gate without it when there is no time left.
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
    // Not late by its own fault if the application blocks every worker: the work that it is to
    // hand over is waited for in the next phase.
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

/// Who is inside, in one line. It has labels of the application, which may block.
fn summary_of(gate: &Gate, journal: &Journal) -> String {
    let count = format!("{} in flight", gate.in_flight());
    let gate = gate.clone();
    journal.describe_now(&Detail::new(Arc::new(move || gate.summary()), count))
}

/// Waits until all have ended. A panic of one of them is one of the task that waits.
async fn end_of(all: &mut JoinSet<()>) {
    while let Some(ended) = all.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
