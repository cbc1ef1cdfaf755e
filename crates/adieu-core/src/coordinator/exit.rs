//! How the end of a shutdown and the end of the process depend on each other.

use std::sync::Arc;

use super::Shutdown;
use super::shared::Shared;
use crate::policy::ExitCode;
use crate::status::Stage;

// === impl Shutdown ===

impl Shutdown {
    /// Starts a thread that ends the process at the deadline of the shutdown, if the process still runs
    /// then. [`main`](crate::main) does this automatically.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start_watchdog(&self) -> std::io::Result<()> {
        self.shared().start_watchdog()
    }

    /// Keeps a guard, such as one that flushes logs when it is dropped, until the process ends.
    ///
    /// [`main`](crate::main) drops the guards as its last step, in reverse order, within the reserve.
    /// Without [`main`](crate::main), they are dropped with the last handle to this shutdown.
    pub fn keep_until_exit(&self, guard: impl Send + 'static) {
        self.shared().process.keep_until_exit(Box::new(guard));
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn start_watchdog(self: &Arc<Self>) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        self.process.watchdog.start(ExitCode::WATCHDOG, move || match weak.upgrade() {
            Some(shared) if shared.progress.stage() == Stage::Over => "the process to exit".into(),
            Some(shared) => shared.status().waiting_line(),
            None => "nothing".into(),
        })
    }

    /// Whether the end of the process runs the shutdown, or must wait for one that has begun.
    pub(crate) fn runs_on_exit(&self) -> bool {
        self.config().triggers.process_hook || self.progress.stage() != Stage::Up
    }

    /// Whether the end of the shutdown ends the process: `exit-process` is on, and `main` does not end
    /// the process with a code of its own.
    pub(super) fn exits_process(&self) -> bool {
        let by_policy = self.with_run(|run, _| run.policy.exit_process).unwrap_or(false);
        by_policy && !self.process.owns_exit_code()
    }
}
