//! Runs the shutdown when `main` ends, for programs with a runtime of their own.

use std::process::ExitCode as ProcessExitCode;

use crate::coordinator::Shutdown;
use crate::reason::Reason;
use crate::report::Finding;
use crate::runner::{self, conclude};
use crate::shield::shielded;
use crate::task::TaskResult;
use crate::watchdog::FINAL_LINE_WAIT;

/// The exit code of a process whose `main` unwinds.
const PANICKED: u8 = 101;

/// Runs the shutdown when it is dropped, and waits until the shutdown is over. It is dropped when
/// `main` returns, fails with `?`, or unwinds. Returned by [`Shutdown::run_on_exit`].
///
/// For `#[tokio::main]` and a `main` without a runtime. [`main`](crate::main) does the same without
/// a guard. Bind the guard directly after the shutdown: values that are bound later are dropped
/// before the shutdown runs.
///
/// ```
/// use adieu_core::{Phase, Shutdown};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let shutdown = Shutdown::new();
///     let _exit = shutdown.run_on_exit();
///     shutdown.install_signals()?;
///     shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", async |_| println!("closed"))?;
///     serve().await?; // The pool is closed even if this fails.
///     Ok(())
/// }
/// # async fn serve() -> std::io::Result<()> { Ok(()) }
/// ```
///
/// The reason is [`Reason::ProcessExit`]. If a signal has already begun the shutdown, the guard waits
/// for it. If the shutdown is over, it does not run again. With `run-by-process-hook = off` the guard
/// does not begin the shutdown, and only waits for one that is already running.
///
/// # The exit code
///
/// A destructor cannot change the value that `main` returns: a program whose `main` returns `Ok(())`
/// exits with 0, even if the shutdown was not clean. There are two ways to exit with the code of the
/// report. Either end with [`ExitGuard::finish`], or set `exit-process = on`: then the process ends
/// after the last phase, and an error that `main` returns is not shown. A `main` that unwinds ends
/// with its own code.
///
/// # After the guard
///
/// When `main` returns, tokio waits for the threads of its blocking pool, without a limit. If
/// [`Shutdown::start_watchdog`] was called, the process must end within the reserve (three seconds by
/// default) after the guard has run the shutdown. Otherwise the watchdog ends it: with the code that
/// [`ExitGuard::finish`] returned, or with 72 if the guard was dropped.
///
/// Signals stay installed until the process ends, even if every handle of the shutdown was dropped.
/// After [`ExitGuard::finish`], a signal does not change the exit code. After the guard was dropped, one
/// signal ends the process with 128 plus its number, and the report file names it.
///
/// # On a current-thread runtime
///
/// There the thread that drops the guard is the only one that polls tasks. So the tasks of the
/// shutdown run on a new runtime. Sockets, timers and tasks of the first runtime make no progress,
/// and a task of the shutdown that needs them ends at its timeout. Await [`ExitGuard::finish`]
/// instead.
///
/// # Limitations
///
/// [`std::process::exit`], [`std::process::abort`] and panics with `panic = "abort"` run no
/// destructors, so the guard does not run either.
#[must_use = "the shutdown runs when this is dropped: bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct ExitGuard {
    /// `None` after [`ExitGuard::finish`].
    shutdown: Option<Shutdown>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Returns a guard that runs the shutdown when it is dropped, at the end of `main`.
    pub fn run_on_exit(&self) -> ExitGuard {
        ExitGuard { shutdown: Some(self.clone()) }
    }
}

// === impl ExitGuard ===

impl ExitGuard {
    /// Runs the shutdown, and returns the exit code for `main`.
    ///
    /// The code is 1 if `result` is an error, which is logged, and otherwise the code of the report;
    /// see [`ExitCode`](crate::ExitCode).
    ///
    /// ```
    /// use adieu_core::Shutdown;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> std::process::ExitCode {
    ///     let shutdown = Shutdown::new();
    ///     let exit = shutdown.run_on_exit();
    ///     exit.finish(serve(&shutdown).await).await
    /// }
    /// # async fn serve(_: &Shutdown) -> std::io::Result<()> { Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future drops the guard, which then runs the shutdown.
    pub async fn finish(mut self, result: impl TaskResult) -> ProcessExitCode {
        let Some(shutdown) = self.shutdown.clone() else { return ProcessExitCode::SUCCESS };
        shutdown.shared().process().own_exit_code();
        let ended = runner::end_of_body(&shutdown, result);
        runner::note_failure(&shutdown, &ended); // Before the report is made.
        let report = if shutdown.shared().runs_on_exit() {
            shutdown.run(Reason::ProcessExit).await.ok()
        } else {
            None
        };
        self.shutdown = None;
        let code = conclude(&shutdown, Some(ended), report.as_ref());
        // From here on the outcome is known, even if the rest of `main` hangs.
        let hung = "main to return: a thread of the runtime, or a destructor, blocks it";
        shutdown.shared().process().leave_by(move |_| Some((code, hung.into())));
        shutdown.shared().process().limit_exit();
        shutdown.shared().leave_with(code).into()
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let Some(shutdown) = self.shutdown.take() else { return };
        if std::thread::panicking() {
            shutdown.shared().process().own_exit_code(); // The exit code of a panic must not become 0.
            if std::thread::current().name() == Some("main") {
                let unwinds = Finding::new("main", "panicked");
                shutdown.shared().exits_with(PANICKED, unwinds);
            }
        }
        // Shielded: a second panic while `main` unwinds would abort the process.
        let _ = shielded(|| {
            if shutdown.shared().runs_on_exit() {
                let report = shutdown.shared().run_blocking(Reason::ProcessExit);
                conclude(&shutdown, None, report.as_ref());
                let _ = shutdown.shared().journal().flush(FINAL_LINE_WAIT);
                shutdown.shared().process().limit_exit();
                shutdown.shared().keep_for_exit();
            }
        });
    }
}
