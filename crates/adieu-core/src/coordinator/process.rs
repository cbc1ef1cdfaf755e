//! The process in which a shutdown runs: signals, the exit guards, the watchdog.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ladder::Ladder;
use super::locks;
use crate::report::{ExitCauses, Finding, ReportFile};
use crate::shield::drop_each_shielded;
use crate::signals::Listener;
use crate::sync::OrderedMutex;
use crate::watchdog::Watchdog;

/// How long the process may take to exit at least, even if the reserve is shorter.
pub(super) const LEAST_EXIT: Duration = Duration::from_secs(1);

pub(crate) struct Process {
    pub(super) listener: OrderedMutex<Option<Listener>>,
    pub(super) ladder: OrderedMutex<Ladder>,
    guards: OrderedMutex<Guards>,
    pub(super) watchdog: Watchdog,
    /// Whether `main` ends the process, with the exit code that it returns.
    owns_exit_code: AtomicBool,
    /// Whether the process has received a signal that ends it.
    is_signalled: AtomicBool,
    pub(super) report_file: ReportFile,
    exit: OrderedMutex<Exit>,
    /// How long the process may take to exit after the last phase.
    time_to_exit: Duration,
}

/// How the process ends.
#[derive(Default)]
struct Exit {
    /// Why it exits with another code than that of the phases.
    causes: ExitCauses,
    decided: Option<ExitDecision>,
}

/// The part of the process that ends it. The first that decides wins: if several ended it at once,
/// each with a code of its own, the report might contain another code than that of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitDecision {
    /// `main` returns this code, and has written its report.
    Main(u8),
    /// A signal or the watchdog ends the process with this code, and writes its report.
    Forced(u8),
}

/// Values that are kept until the process ends. They are dropped in reverse order. A destructor that
/// panics does not affect the others.
#[derive(Default)]
pub(crate) struct Guards(Vec<Box<dyn Any + Send>>);

// === impl Process ===

impl Process {
    /// Limits the exit of the process to `reserve`, but not to less than [`LEAST_EXIT`].
    pub(super) fn new(reserve: Duration, report_file: Option<PathBuf>) -> Self {
        Self {
            listener: OrderedMutex::new(locks::LISTENER, None),
            ladder: OrderedMutex::new(locks::LADDER, Ladder::default()),
            guards: OrderedMutex::new(locks::GUARDS, Guards::default()),
            watchdog: Watchdog::new(),
            owns_exit_code: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
            report_file: ReportFile::new(report_file),
            exit: OrderedMutex::new(locks::EXIT, Exit::default()),
            time_to_exit: reserve.max(LEAST_EXIT),
        }
    }

    /// From now on, the process ends with the code that `main` returns, also with `exit-process`.
    pub(crate) fn own_exit_code(&self) {
        self.owns_exit_code.store(true, Ordering::Relaxed);
    }

    pub(super) fn owns_exit_code(&self) -> bool {
        self.owns_exit_code.load(Ordering::Relaxed)
    }

    pub(super) fn mark_signalled(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.is_signalled.load(Ordering::Relaxed)
    }

    /// Returns why the process exits with another code than that of the phases.
    pub(super) fn exit_causes(&self) -> ExitCauses {
        self.exit.lock().causes.clone()
    }

    /// Adds such a cause. Returns false if it is known.
    pub(super) fn add_exit_cause(&self, exit_code: u8, because: Finding) -> bool {
        self.exit.lock().causes.add(exit_code, because)
    }

    /// Decides how the process ends. Fails with the decision that was made before.
    pub(crate) fn decide_exit(&self, decision: ExitDecision) -> Result<(), ExitDecision> {
        let mut exit = self.exit.lock();
        match exit.decided {
            Some(decided) if decided != decision => Err(decided),
            _ => {
                exit.decided = Some(decision);
                Ok(())
            }
        }
    }

    /// Limits the time until the process exits, if the watchdog was started.
    pub(crate) fn limit_exit(&self) {
        self.watchdog.arm_exit(self.time_to_exit);
    }

    /// Sets the function that the watchdog calls at its deadline; see [`Watchdog::leave_by`].
    pub(crate) fn leave_by(
        &self,
        leave: impl FnOnce(Duration) -> Option<(u8, String)> + Send + 'static,
    ) {
        self.watchdog.leave_by(leave);
    }

    /// Returns how long the watchdog lets the process live; `None` if that is not limited.
    pub(crate) fn time_to_exit(&self) -> Option<Duration> {
        self.watchdog.left()
    }

    pub(super) fn keep_until_exit(&self, guard: Box<dyn Any + Send>) {
        self.guards.lock().0.push(guard);
    }

    /// Takes the guards, to be dropped without the lock.
    pub(crate) fn take_guards(&self) -> Guards {
        std::mem::take(&mut *self.guards.lock())
    }
}

// === impl Guards ===

impl Guards {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        drop_each_shielded(std::mem::take(&mut self.0).into_iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1012_the_first_that_ends_the_process_decides_its_exit_code() {
        let process = Process::new(Duration::ZERO, None);
        let (main, forced) = (ExitDecision::Main(70), ExitDecision::Forced(72));
        assert_eq!(process.decide_exit(main), Ok(()));
        assert_eq!(process.decide_exit(forced), Err(main), "the report of main is written");
        assert_eq!(process.decide_exit(main), Ok(()));

        let process = Process::new(Duration::ZERO, None);
        assert_eq!(process.decide_exit(forced), Ok(()));
        assert_eq!(process.decide_exit(main), Err(forced), "the watchdog writes its report");
    }
}
