//! Runs the shutdown when `main` ends, for programs that own their runtime themselves.

use std::process::ExitCode as ProcessExitCode;

use crate::coordinator::Shutdown;
use crate::reason::Reason;
use crate::runner::{self, conclude};
use crate::shield::shielded;
use crate::task::TaskResult;
use crate::watchdog::LAST_WORDS;

/// Runs the shutdown when it is dropped, and waits for its end: when `main` returns, when it fails
/// with `?`, and when it unwinds. Returned by [`Shutdown::run_on_exit`].
///
/// For `#[tokio::main]` and a `main` without a runtime. [`main`](crate::main) does the same without
/// a guard. Bind it first, after the shutdown: what is bound later is dropped before the shutdown
/// runs.
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
///     serve().await?; // Whatever becomes of it, the pool is closed.
///     Ok(())
/// }
/// # async fn serve() -> std::io::Result<()> { Ok(()) }
/// ```
///
/// A shutdown that a signal has begun is joined. One that is over is not run again. The reason is
/// [`Reason::ProcessExit`]. With `run-by-process-hook = off` the guard runs nothing, and only waits
/// for a shutdown that somebody else has begun.
///
/// # The exit code
///
/// A destructor cannot change what `main` returns: a program whose `main` returns `Ok(())` exits with
/// 0, also if the shutdown was not clean. End with [`ExitGuard::finish`] to exit with the code of the
/// report, or set `exit-process = on`: then the process ends with the last phase and the code of the
/// report, and an error that `main` returns is not shown. A `main` that unwinds ends with its own code.
///
/// # What comes after
///
/// When `main` returns, tokio waits for threads of its blocking pool, for ever if need be. If
/// [`Shutdown::start_watchdog`] was called, the process has the reserve, three seconds, to end in
/// from when the guard has done its work; then the watchdog ends it: with the code that
/// [`ExitGuard::finish`] returned, or with 72 if the guard was dropped.
///
/// # On a current-thread runtime
///
/// The thread that drops the guard is the one that polls tasks there. So tasks of the shutdown run on
/// a runtime of their own, and what belongs to the first one (its sockets, its timers, tasks that
/// were spawned or started there) makes no progress; a task that needs it ends at its timeout. Await
/// [`ExitGuard::finish`] instead.
///
/// # What it cannot do
///
/// [`std::process::exit`] and [`std::process::abort`] run no destructors, nor does a panic with
/// `panic = "abort"`.
#[must_use = "the shutdown runs when this is dropped: bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct ExitGuard {
    /// `None` when it has done its work.
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
    /// Runs the shutdown, and returns the exit code for `main`: 1 if `result` is an error, which is
    /// logged, and otherwise the code of the report; see [`ExitCode`](crate::ExitCode).
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
    /// Dropping the future drops the guard.
    pub async fn finish(mut self, result: impl TaskResult) -> ProcessExitCode {
        let Some(shutdown) = self.shutdown.clone() else { return ProcessExitCode::SUCCESS };
        shutdown.shared().process().own_exit_code();
        let ended = runner::end_of_body(&shutdown, result);
        let report = if shutdown.shared().runs_on_exit() {
            shutdown.run(Reason::ProcessExit).await.ok()
        } else {
            None
        };
        self.shutdown = None;
        let code = conclude(&shutdown, Some(ended), report.as_ref());
        // The outcome is known, also if what comes after this hangs.
        let hung = "main to return: a thread of the runtime, or a destructor, blocks it";
        shutdown.shared().process().leave_by(move |_| Some((code, hung.into())));
        shutdown.shared().process().limit_exit();
        code.into()
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let Some(shutdown) = self.shutdown.take() else { return };
        if std::thread::panicking() {
            shutdown.shared().process().own_exit_code(); // A panic must not look like a clean end.
        }
        // Shielded: a second panic while `main` unwinds would abort the process.
        let _ = shielded(|| {
            if shutdown.shared().runs_on_exit() {
                let report = shutdown.shared().run_blocking(Reason::ProcessExit);
                conclude(&shutdown, None, report.as_ref());
                let _ = shutdown.shared().journal().flush(LAST_WORDS);
                shutdown.shared().process().limit_exit();
            }
        });
    }
}
