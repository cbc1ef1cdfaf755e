//! Runs a shutdown from a thread that blocks until it is over.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tracing::{error, warn};

use super::completion::Completion;
use super::driver;
use super::process::LEAST_EXIT;
use super::runtime_state::{RuntimeState, runtime_state};
use super::shared::Shared;
use crate::deadline::Deadline;
use crate::park;
use crate::reason::Reason;
use crate::report::Report;
use crate::time::real_now;

// === impl Shared ===

impl Shared {
    /// Runs the shutdown, or joins the one that runs, and blocks this thread until it is over, but not
    /// beyond its deadline.
    ///
    /// This thread may be the only one of the runtime on which the tasks run, or that runtime may have
    /// been dropped. The shutdown then gets a runtime of its own.
    pub(crate) fn run_blocking(self: &Arc<Self>, reason: Reason) -> Option<Arc<Report>> {
        if let Some(report) = self.progress.report() {
            return Some(report);
        }
        let own_runtime = self.replace_runtime();
        self.begin(reason, None);
        let left = self.deadline().map_or(Duration::ZERO, Deadline::remaining);
        let mut completion = Completion::new(self);
        let waited =
            park::block_on_until(Pin::new(&mut completion), real_now() + left + LEAST_EXIT);
        if let Some(runtime) = own_runtime {
            runtime.shutdown_background(); // A runtime must not be dropped inside another one.
        }
        let error = match waited {
            Some(Ok(report)) => {
                if self.exits_process() {
                    std::thread::sleep(LEAST_EXIT); // The watchdog ends the process meanwhile.
                }
                return Some(report);
            }
            Some(Err(error)) => error.to_string(),
            None => "the shutdown was not over at its deadline".into(),
        };
        self.journal().log(move || error!(error, "shutdown report is missing"));
        None
    }

    /// Builds a runtime for the tasks, if theirs cannot run them while this thread blocks.
    fn replace_runtime(self: &Arc<Self>) -> Option<Runtime> {
        let home = self.home().or_else(|| Handle::try_current().ok())?;
        let has_workers = home.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let is_worker = tokio::task::try_id().is_some();
        let why = match runtime_state(&home) {
            RuntimeState::Polled => return None,
            // The workers are blocked, and may recover. The stand-in thread keeps the deadlines
            // meanwhile, so the runtime is not replaced.
            RuntimeState::Stalled if has_workers && !is_worker => return None,
            RuntimeState::Stalled => "the only thread that polls it is blocked here",
            RuntimeState::Dropped => "it was dropped",
        };
        // Two workers, so that a task that blocks one of them does not delay the others.
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                self.journal().log(move || error!(%error, "failed to build a runtime"));
                return None;
            }
        };
        let effect = "sockets, timers and spawned tasks of that runtime make no progress";
        let advice = "await the shutdown before main returns";
        self.journal().log(move || warn!(why, effect, advice, "shutdown moved to a new runtime"));
        let mut core = self.core.lock();
        core.home = Some(runtime.handle().clone());
        let is_running = core.run.is_some();
        drop(core);
        if is_running {
            driver::take_over(self, runtime.handle());
        }
        Some(runtime)
    }
}
