//! Ends a shutdown: publishes the report, and drops everything that was kept for the run.

use std::sync::Arc;

use super::process::ExitDecision;
use super::shared::Shared;
use crate::outcome::Ending;
use crate::report::Report;
use crate::shield::drop_each_shielded;
use crate::watchdog::FINAL_LINE_WAIT;

// === impl Shared ===

impl Shared {
    /// Publishes the report: all phases are over.
    pub(super) fn finish(&self, report: Arc<Report>) {
        let is_aborted = matches!(report.outcome, Ending::Aborted { .. });
        self.limit_or_release_process();
        // Before the report is published: a thread that waits for it may drop the runtime at once, and
        // the driver on that runtime should not return to its timer.
        self.engine.nudge.notify_one();
        self.progress.finish(report);
        self.amend_report();
        if !is_aborted {
            self.drop_leftovers();
        }
        if self.exits_process() {
            let Some(report) = self.progress.report() else { return };
            if self.process.decide_exit(ExitDecision::Main(report.exit_code)).is_err() {
                return; // A signal or the watchdog ends the process now.
            }
            self.write_report(&report, FINAL_LINE_WAIT);
            let _ = self.journal().flush(FINAL_LINE_WAIT);
            self.process.watchdog.exit(report.exit_code);
        }
    }

    /// If `main` ends the process, limits the time until then. Otherwise the process may live on, unless
    /// the platform ends it: then it must exit before its deadline.
    fn limit_or_release_process(&self) {
        if self.process.owns_exit_code() {
            self.process.limit_exit();
        } else if !self.is_ended_by_platform() {
            self.process.watchdog.disarm();
        }
    }

    /// Returns whether the process was signalled, and the platform is known to kill it some time later.
    fn is_ended_by_platform(&self) -> bool {
        let is_limited = self.core.lock().allowance.budget.kill_after.is_some();
        is_limited && self.process.is_signalled()
    }

    /// Drops the tasks, and the work before gates are closed, that never ran. They may hold handles to this
    /// shutdown. An aborted shutdown can be resumed, so it keeps them.
    fn drop_leftovers(&self) {
        let tasks = self.core.lock().declared.registry.clear();
        let drained = self.drains.lock().take_drained();
        let accounts = self.accounts.lock().take();
        // Each separately: a destructor that panics must affect neither the others nor the next steps.
        drop_each_shielded(tasks);
        drop_each_shielded(drained);
        drop_each_shielded(accounts);
    }
}
