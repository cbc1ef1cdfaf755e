//! Drains gates in the phases where that belongs.

use std::sync::Arc;

use super::Shutdown;
use crate::gate::Gate;
use crate::phase::Phase;
use crate::task::{AddTaskError, TaskCx, TaskHandle, TaskSpec};

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
    /// The window is the timeout of [`Phase::SERVICE_REQUESTS_DONE`]. With nobody inside it ends
    /// at once; when it expires, the report says who was left.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`]. The gate is then not drained by this shutdown.
    #[track_caller]
    pub fn drain(&self, gate: &Gate) -> Result<(), AddTaskError> {
        let mut added = Vec::from_iter(self.add_lame_duck()?);
        if let Err(error) = self.add_drain(gate, &mut added) {
            // All or none.
            for task in added {
                task.cancel();
            }
            return Err(error);
        }
        self.shared().take_on(gate, &self.shared().gates);
        Ok(())
    }

    /// Adds the tasks that drain a gate, up to the first that cannot be added.
    #[track_caller]
    pub(super) fn add_drain(
        &self,
        gate: &Gate,
        added: &mut Vec<TaskHandle>,
    ) -> Result<(), AddTaskError> {
        let name = gate.name();
        added.push(self.add_task(Phase::SERVICE_UNBIND, format!("close {name}"), {
            let gate = gate.clone();
            async move |_| gate.close()
        })?);
        let task = TaskSpec::new(format!("drain {name}")).describe({
            let gate = gate.clone();
            move || gate.summary()
        });
        added.push(self.add_task(Phase::SERVICE_REQUESTS_DONE, task, {
            let gate = gate.clone();
            async move |cx: TaskCx| {
                // Closed already, unless the shutdown began at a later phase.
                gate.close();
                tokio::select! {
                    _ = gate.drained(cx.shutdown_deadline()) => {}
                    () = cx.cancelled() => gate.cut(),
                }
            }
        })?);
        added.push(self.add_task(Phase::SERVICE_STOP, format!("cut {name}"), {
            let gate = gate.clone();
            async move |_| {
                if !gate.is_drained() {
                    gate.cut();
                }
            }
        })?);
        Ok(())
    }
}
