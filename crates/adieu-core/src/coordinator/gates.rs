//! Drains gates in the phases where that belongs.

use std::sync::Arc;

use super::Shutdown;
use crate::gate::Gate;
use crate::phase::Phase;
use crate::sync::lock;
use crate::task::{AddTaskError, TaskCx, TaskSpec};

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
        let lame_duck = self.add_lame_duck()?;
        let name = gate.name();
        let close = self.add_task(Phase::SERVICE_UNBIND, format!("close {name}"), {
            let gate = gate.clone();
            async move |_| gate.close()
        })?;
        let task = TaskSpec::new(format!("drain {name}")).describe({
            let gate = gate.clone();
            move || gate.summary()
        });
        let drain = self.add_task(Phase::SERVICE_REQUESTS_DONE, task, {
            let gate = gate.clone();
            async move |cx: TaskCx| {
                // Closed already, unless the shutdown began at a later phase.
                gate.close();
                tokio::select! {
                    _ = gate.drained(cx.shutdown_deadline()) => {}
                    () = cx.cancelled() => gate.cut(),
                }
            }
        });
        let cut = self.add_task(Phase::SERVICE_STOP, format!("cut {name}"), {
            let gate = gate.clone();
            async move |_| {
                if !gate.is_drained() {
                    gate.cut();
                }
            }
        });
        let refused = drain.as_ref().err().or(cut.as_ref().err()).cloned();
        if let Some(error) = refused {
            // All or none.
            for added in [Ok(close), drain, cut].into_iter().flatten().chain(lame_duck) {
                added.cancel();
            }
            return Err(error);
        }
        lock(&self.shared().gates).push(gate.clone());
        Ok(())
    }
}
