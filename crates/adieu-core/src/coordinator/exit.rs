//! How the end of a shutdown and the end of the process depend on each other.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::{error, warn};

use super::Shutdown;
use super::process::ExitDecision;
use super::shared::Shared;
use crate::policy::ExitCode;
use crate::report::{Finding, Report};
use crate::status::Stage;
use crate::time::now;
use crate::watchdog::{AtDeadline, FINAL_LINE_WAIT};

/// How long a process that ends at once may take to write its report.
const TO_WRITE: Duration = Duration::from_millis(100);

/// How long such a process may take to log why it ends.
const TO_LOG: Duration = Duration::from_millis(50);

/// How long `main` waits for the end of a process that something else ends. Longer than that takes.
const UNTIL_FORCED: Duration = Duration::from_secs(2);

// === impl Shutdown ===

impl Shutdown {
    /// Starts a thread that ends the process at the deadline of the shutdown, if the shutdown still runs
    /// then. [`main`](crate::main) does this automatically.
    ///
    /// When the shutdown is over, the process may live on. There are three exceptions, in which the
    /// process must exit, and the thread ends it if it does not: after an [`ExitGuard`](crate::ExitGuard),
    /// within the reserve; with `exit-process`, at once; and if the process has received a signal and its
    /// platform is known to kill it (`kill-after`), at the deadline, with exit code 72.
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
        self.process.watchdog.start(ExitCode::WATCHDOG, DeadlinePassed(Arc::downgrade(self)))
    }

    /// Makes this the exit code of the process, for this cause, wherever the outcome is visible: in the
    /// report that is or will be published, in its file, and in the log. Of several codes the last
    /// counts. Returns false if the cause is known.
    pub(crate) fn exits_with(&self, exit_code: u8, because: Finding) -> bool {
        let is_new = self.process.add_exit_cause(exit_code, because);
        self.amend_report();
        is_new
    }

    /// Logs and writes the report of a process that ends now, with this code, for this cause. The
    /// shutdown may not be over. The time that this takes is limited. The exit must have been decided.
    pub(super) fn conclude_forced_exit(&self, exit_code: u8, because: Finding) {
        let (cause, what) = (Arc::clone(&because.name), because.what.clone());
        self.exits_with(exit_code, because);
        self.journal().log_to_subscriber(move || {
            warn!(exit_code, cause = &*cause, what, "process exits");
        });
        if let Some(report) = self.report_of_exit() {
            let _ = self.process.report_file.write(report, TO_WRITE);
        }
        let _ = self.journal().flush(TO_LOG);
    }

    /// Returns the report of a process that ends now; `None` if the shutdown has not begun.
    pub(crate) fn report_of_exit(&self) -> Option<Arc<Report>> {
        self.progress.report().or_else(|| self.report_so_far().map(Arc::new))
    }

    /// Writes the report to the configured file. A failure is logged.
    pub(crate) fn write_report(&self, report: &Arc<Report>, within: Duration) {
        if let Err(error) = self.process.report_file.write(Arc::clone(report), within) {
            self.journal().log(move || error!(%error, "failed to write the report"));
        }
    }

    /// Returns the report of a shutdown that is not over, with the work that is not finished.
    fn report_so_far(&self) -> Option<Report> {
        // Work that is admitted after the accounts were made would be lost.
        self.close_gates();
        let _ = self.find_unfinished();
        let unfinished = self.all_unfinished();
        self.journal().describe_all(unfinished.iter().map(|unfinished| &unfinished.what));
        let causes = self.process.exit_causes();
        self.with_run(|run, declared| {
            run.report_so_far(unfinished, causes, &declared.registry, now())
        })
    }

    /// Decides that `main` ends the process with this code, whose report is written. If a signal or the
    /// watchdog ends the process now, this waits for that: `main` must not return another code meanwhile.
    pub(crate) fn leave_with(self: &Arc<Self>, code: u8) -> u8 {
        self.keep_for_exit();
        match self.process.decide_exit(ExitDecision::Main(code)) {
            Ok(()) => code,
            Err(ExitDecision::Main(decided)) => decided,
            Err(ExitDecision::Forced(decided)) => {
                std::thread::sleep(UNTIL_FORCED);
                decided
            }
        }
    }

    /// Keeps a shutdown that is over until the process ends, so that its signals stay installed: their
    /// default action would end the process with a code that differs from the report.
    pub(crate) fn keep_for_exit(self: &Arc<Self>) {
        if self.progress.stage() == Stage::Over {
            std::mem::forget(Arc::clone(self));
        }
    }

    /// Returns whether the end of the process runs the shutdown, or must wait for one that has begun.
    pub(crate) fn runs_on_exit(&self) -> bool {
        self.config().triggers.process_hook || self.progress.stage() != Stage::Up
    }

    /// Returns whether the end of the shutdown ends the process: `exit-process` is on, and `main` does
    /// not end the process with a code of its own.
    pub(super) fn exits_process(&self) -> bool {
        let by_policy = self.with_run(|run, _| run.policy.exit_process).unwrap_or(false);
        by_policy && !self.process.owns_exit_code()
    }
}

/// Ends the process of this shutdown at the deadline.
struct DeadlinePassed(Weak<Shared>);

// === impl DeadlinePassed ===

impl AtDeadline for DeadlinePassed {
    fn decide(&self, code: u8) -> Result<(), u8> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        match shared.process.decide_exit(ExitDecision::Forced(code)) {
            Ok(()) => Ok(()),
            Err(ExitDecision::Main(decided)) => Err(decided),
            Err(ExitDecision::Forced(decided)) => {
                std::thread::sleep(FINAL_LINE_WAIT); // A signal ends the process now.
                Err(decided)
            }
        }
    }

    fn conclude(self: Arc<Self>) {
        let Some(shared) = self.0.upgrade() else { return };
        let what = if shared.progress.stage() == Stage::Over {
            "the process did not exit after the shutdown".to_owned()
        } else {
            // The tasks do not describe themselves here, because that may block.
            let waiting = shared.with_run(|run, _| run.status(Stage::ShuttingDown, now()));
            let waiting = waiting.map(|status| status.without_details().waiting_line());
            format!("deadline passed, waiting for {}", waiting.unwrap_or_default())
        };
        shared.conclude_forced_exit(ExitCode::WATCHDOG, Finding::new("watchdog", what));
    }

    fn waiting_for(&self) -> String {
        match self.0.upgrade() {
            Some(shared) if shared.progress.stage() == Stage::Over => "the process to exit".into(),
            Some(shared) => shared.status().waiting_line(),
            None => "the process to exit".into(),
        }
    }
}

#[cfg(all(test, not(adieu_loom)))]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::phase::Phase;
    use crate::reason::Reason;

    #[tokio::test]
    async fn s1762_gates_are_closed_when_the_report_of_a_forced_exit_is_made() {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let gate = shutdown.add_gate("http").unwrap();
        let first = Phase::BEFORE_SERVICE_UNBIND;
        shutdown.add_task(first, "hangs", async |_| std::future::pending::<()>().await).unwrap();
        let _completion = shutdown.run(Reason::Unknown);
        let _pass = gate.enter().unwrap();
        let report = shutdown.shared().report_of_exit().unwrap();
        let named =
            |found: &Finding| &*found.name == "http" && found.what.starts_with("1 in flight");
        assert!(report.findings.iter().any(named), "{report}");
        assert!(gate.enter().is_err(), "the report would not contain this work");
    }
}
