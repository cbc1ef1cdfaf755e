//! Owns the process: runtime, signals, body, shutdown, exit code.

use std::pin::Pin;
use std::process::ExitCode as ProcessExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::body::run_as_body;
use crate::config::{Config, ConfigError};
use crate::coordinator::Shutdown;
use crate::log_thread::flush_shared;
use crate::park;
use crate::policy::ExitCode;
use crate::reason::Reason;
use crate::report::{Finding, Report};
use crate::shield::drop_shielded;
use crate::signals::Signal;
use crate::status::Stage;
use crate::sync::lock;
use crate::systemd;
use crate::task::{Ended, TaskResult, catch, chain, end_of};
use crate::time::{Short, real_now};
use crate::watchdog::write_final_line;

/// How long the body may continue after the shutdown is over. Short, because many bodies never end:
/// each exit of such a program would last as long as the time that the platform allows.
const BODY_GRACE: Duration = Duration::from_millis(100);

/// The maximum of each wait when the process exits.
const MAX_SHARE: Duration = Duration::from_secs(1);

/// Runs `body` and then the shutdown, and returns the exit code of the process.
///
/// Equivalent to [`Runner::new`] followed by [`Runner::run`].
///
/// ```no_run
/// use adieu_core::Phase;
///
/// fn main() -> std::process::ExitCode {
///     adieu_core::main(async |shutdown| {
///         shutdown.add_task(Phase::SERVICE_STOP, "print", async |_| println!("adieu"))?;
///         shutdown.begun().await;
///         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
///     })
/// }
/// ```
pub fn main<F, R>(body: F) -> ProcessExitCode
where
    F: AsyncFnOnce(Shutdown) -> R,
    R: TaskResult,
{
    Runner::new().run(body)
}

/// Owns the process: its runtime, its signals, its shutdown and its exit code.
///
/// The runner builds a multi-threaded tokio runtime, installs signal handlers before any slow work,
/// and runs the body. When the body returns or fails, or a signal arrives, even during start-up, the
/// shutdown runs. Then guards are dropped, blocking threads have the rest of the reserve to end, and
/// the runner returns the exit code. A watchdog ends the process at the deadline if it hangs.
///
/// The body is not work of the shutdown, which does not wait for it: if the body still runs 100 ms after
/// the shutdown is over, it is dropped, and the log shows `body dropped`. So code after
/// `serve(…).await?` may not run to its end. Put it into a task of a phase, such as
/// [`Phase::CLOSE_RESOURCES`](crate::Phase::CLOSE_RESOURCES): the shutdown waits for its tasks, and
/// reports them.
///
/// An error that only reports that the shutdown has begun, even inside another error, does not count
/// as a failure of the body. With `run-by-process-hook = off` the runner installs no signal handlers,
/// and the end of the body does not run the shutdown.
///
/// Without a `tracing` subscriber the log is written to stderr. With the feature `systemd` the runner
/// also notifies systemd; then call [`Shutdown::mark_started`] when start-up has ended.
#[derive(Debug)]
#[must_use = "a runner does nothing until it runs"]
pub struct Runner {
    config: Result<Config, ConfigError>,
    signals: Vec<Signal>,
    runtime: tokio::runtime::Builder,
}

// === impl Runner ===

impl Runner {
    /// Creates a runner that is configured by the environment; see [`Config::from_env`].
    /// [`Runner::run`] reports an invalid configuration.
    pub fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.enable_all();
        Self { config: Config::from_env(), signals: Signal::DEFAULT.to_vec(), runtime }
    }

    /// Uses this configuration instead of the environment's.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Ok(config);
        self
    }

    /// Handles these signals instead of [`Signal::DEFAULT`].
    pub fn signals(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.signals = signals.into_iter().collect();
        self
    }

    /// Uses this many worker threads instead of one for each core.
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.runtime.worker_threads(threads.max(1));
        self
    }

    /// Changes the builder of the runtime: its threads, their names, their stacks.
    pub fn runtime(mut self, change: impl FnOnce(&mut tokio::runtime::Builder)) -> Self {
        change(&mut self.runtime);
        self
    }

    /// Runs `body` and then the shutdown, and returns the exit code; see [`ExitCode`].
    pub fn run<F, R>(self, body: F) -> ProcessExitCode
    where
        F: AsyncFnOnce(Shutdown) -> R,
        R: TaskResult,
    {
        match self.try_run(body) {
            Ok(code) => code.into(),
            Err(error) => {
                // Bounded: a stderr that blocks must not keep the process from ending.
                let text = format!("failed to start: {}", chain(&*error));
                write_final_line(move || text);
                ExitCode::FAILED.into()
            }
        }
    }

    fn try_run<F, R>(mut self, body: F) -> Result<u8, Box<dyn std::error::Error + Send + Sync>>
    where
        F: AsyncFnOnce(Shutdown) -> R,
        R: TaskResult,
    {
        let config = self.config?;
        let hooked = config.triggers.process_hook;
        let runtime = self.runtime.build()?;
        let entered = runtime.enter();
        let shutdown = Shutdown::configured(config)?;
        shutdown.shared().process().own_exit_code();
        shutdown.shared().journal().use_stderr();
        let exit = Arc::new(ExitProgress::default());
        shutdown.shared().process().leave_by(leave_without_main(&shutdown, &exit));
        shutdown.start_watchdog()?;
        if hooked {
            shutdown.install_signals_for(self.signals)?;
        }
        systemd::start_notifying(&shutdown);
        drop(entered);

        let (ended, report) = run_body(&runtime, &shutdown, body);
        let code = conclude(&shutdown, ended, report.as_ref());
        *lock(&exit.code) = Some(code);

        // The waits fit into the time that the watchdog allows, and leave a fifth of it unused.
        let _ = shutdown.shared().journal().flush(share_of_exit(&shutdown, 4));
        flush_shared(share_of_exit(&shutdown, 4));
        drop_guards(&shutdown, share_of_exit(&shutdown, 3));
        runtime.shutdown_timeout(share_of_exit(&shutdown, 2));
        // From here on the watchdog names exit handlers as the cause if the process does not end.
        let code = shutdown.shared().leave_with(code);
        exit.has_returned.store(true, Ordering::Relaxed);
        Ok(code)
    }
}

impl Default for Runner {
    fn default() -> Self {
        Self::new()
    }
}

/// The stage of the exit that the main thread has reached.
#[derive(Default)]
struct ExitProgress {
    /// The exit code. Known when the body has ended and was dropped.
    code: Mutex<Option<u8>>,
    has_returned: AtomicBool,
}

/// Returns the function that the watchdog calls if the shutdown is over and the main thread does not
/// end, because a destructor or an exit handler of the application hangs.
///
/// The outcome is known by then, so the process should exit with its code.
fn leave_without_main(
    shutdown: &Shutdown,
    exit: &Arc<ExitProgress>,
) -> impl FnOnce(Duration) -> Option<(u8, String)> + Send + 'static {
    let (shutdown, exit) = (shutdown.downgrade(), Arc::clone(exit));
    move |within| {
        let code = *lock(&exit.code);
        if exit.has_returned.load(Ordering::Relaxed) {
            return code.map(|code| (code, "an exit handler (atexit) of the process".into()));
        }
        let shutdown = shutdown.upgrade().filter(|shutdown| shutdown.stage() == Stage::Over)?;
        let hung = match code {
            Some(_) => "main to return",
            None => "the body, or a destructor of one of its locals, which blocks the main thread",
        };
        let share = within / 3;
        let conclude = || conclude_within(&shutdown, None, shutdown.report().as_ref(), share);
        let code = code.unwrap_or_else(conclude);
        drop_guards(&shutdown, share);
        let _ = shutdown.shared().journal().flush(share);
        Some((code, hung.into()))
    }
}

/// Runs the body until it ends or the shutdown is over, and then waits for the end of the shutdown.
fn run_body<F, R>(
    runtime: &tokio::runtime::Runtime,
    shutdown: &Shutdown,
    body: F,
) -> (Option<Ended>, Option<Arc<Report>>)
where
    F: AsyncFnOnce(Shutdown) -> R,
    R: TaskResult,
{
    let body = async { end_of_body(shutdown, body(shutdown.clone()).await) };
    let mut body = Box::pin(catch(run_as_body(body)));
    let (mut ended, report) = wait_for_both(runtime, shutdown, body.as_mut());
    let entered = runtime.enter();
    if let Some(message) = drop_shielded(body) {
        ended = Some(Ended::Panicked(message));
    }
    drop(entered);
    // The report may have changed since, if tasks were added too late.
    (ended, shutdown.report().or(report))
}

/// Runs the shutdown after the body has ended.
///
/// A current-thread runtime polls tasks only inside `block_on`. On other runtimes this does not wait
/// for the runtime: all its workers may be blocked.
fn run_to_the_end(runtime: &tokio::runtime::Runtime, shutdown: &Shutdown) -> Option<Arc<Report>> {
    let running = shutdown.run(Reason::ProcessExit);
    let flavor = runtime.handle().runtime_flavor();
    if flavor == tokio::runtime::RuntimeFlavor::CurrentThread {
        return runtime.block_on(running).ok();
    }
    running.wait().ok()
}

fn wait_for_both(
    runtime: &tokio::runtime::Runtime,
    shutdown: &Shutdown,
    mut body: Pin<&mut impl Future<Output = Ended>>,
) -> (Option<Ended>, Option<Arc<Report>>) {
    loop {
        let first = runtime.block_on(async {
            tokio::select! {
                biased;
                ended = &mut body => Ok(ended),
                report = shutdown.completed() => Err(report.ok()),
            }
        });
        let report = match first {
            Ok(ended) if !shutdown.shared().runs_on_exit() => return (Some(ended), None),
            // If a signal was first, this waits for the shutdown that is in progress.
            Ok(ended) => {
                note_failure(shutdown, &ended); // Before the report is made.
                return (Some(ended), run_to_the_end(runtime, shutdown));
            }
            Err(report) => report,
        };
        // Without the runtime's timers: its workers may all be blocked.
        let entered = runtime.enter();
        let within = share_of_exit(shutdown, 4).min(BODY_GRACE);
        let ended = park::block_on_until(body.as_mut(), real_now() + within);
        drop(entered);
        // The body may have resumed an aborted shutdown; then wait for that one.
        if ended.is_some() || shutdown.stage() == Stage::Over {
            if ended.is_none() {
                let waited = Short(within);
                let why = "it was running when the shutdown was over";
                let log = move || warn!(why, %waited, "body dropped");
                shutdown.shared().journal().log(log);
            }
            let report = shutdown.completed().wait().ok().or(report);
            return (ended, report);
        }
    }
}

/// Returns how a body with this result has ended.
pub(crate) fn end_of_body(shutdown: &Shutdown, returned: impl TaskResult) -> Ended {
    match returned.into_result() {
        // The shutdown interrupted start-up, which is not a failure.
        Err(error) if shutdown.shared().is_refusal(&*error) => {
            let error = chain(&*error);
            shutdown.shared().journal().log(move || info!(error, "start-up interrupted"));
            Ended::Finished
        }
        ended => end_of(ended),
    }
}

/// Logs the error of the body, writes the report, and returns the exit code.
pub(crate) fn conclude(
    shutdown: &Shutdown,
    body: Option<Ended>,
    report: Option<&Arc<Report>>,
) -> u8 {
    conclude_within(shutdown, body, report, share_of_exit(shutdown, 4))
}

fn conclude_within(
    shutdown: &Shutdown,
    body: Option<Ended>,
    report: Option<&Arc<Report>>,
    within: Duration,
) -> u8 {
    let shared = shutdown.shared();
    let has_failed = body.is_some_and(|ended| note_failure(shutdown, &ended));
    if !has_failed && report.is_none() && shutdown.stage() != Stage::Up {
        let lost = Finding::new("shutdown", "ended without a report: its runtime was dropped");
        shared.exits_with(ExitCode::UNCLEAN, lost);
    }
    match shared.report_of_exit() {
        Some(report) => {
            shared.write_report(&report, within);
            report.exit_code
        }
        None if has_failed => ExitCode::FAILED,
        // The end of the body does not run the shutdown, and nothing else has begun it.
        None => ExitCode::CLEAN,
    }
}

/// Logs the error of a body that has failed, once, and makes it part of the report. Returns whether the
/// body has failed.
pub(crate) fn note_failure(shutdown: &Shutdown, body: &Ended) -> bool {
    let error: Arc<str> = match body {
        Ended::Failed(error) => Arc::clone(error),
        Ended::Panicked(message) => format!("panicked: {message}").into(),
        Ended::Finished | Ended::Aborted | Ended::LeftBehind => return false,
    };
    let shared = shutdown.shared();
    if shared.exits_with(ExitCode::FAILED, Finding::new("body", &*error)) {
        shared.journal().log(move || error!(error = &*error, "body failed"));
    }
    true
}

/// Returns a part of the time that the watchdog allows, a second at most.
fn share_of_exit(shutdown: &Shutdown, part: u32) -> Duration {
    let left = shutdown.shared().process().time_to_exit().unwrap_or(MAX_SHARE);
    (left / part).min(MAX_SHARE)
}

/// Drops the guards of the shutdown, the latest first, and waits for that for up to `within`: a guard
/// that hangs, such as a log flusher, must not keep the process alive.
fn drop_guards(shutdown: &Shutdown, within: Duration) {
    let guards = shutdown.shared().process().take_guards();
    if guards.is_empty() {
        return;
    }
    let (done, dropped) = std::sync::mpsc::channel();
    let dropping = std::thread::Builder::new().name("adieu guards".into()).spawn(move || {
        drop(guards);
        let _ = done.send(());
    });
    if dropping.is_ok() {
        let _ = dropped.recv_timeout(within);
    }
}
