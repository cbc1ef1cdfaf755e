//! Owns the process: runtime, signals, body, shutdown, exit code.

use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode as ProcessExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::{error, info};

use crate::config::{Config, ConfigError};
use crate::coordinator::Shutdown;
use crate::log_thread::flush_shared;
use crate::park;
use crate::policy::ExitCode;
use crate::reason::Reason;
use crate::report::Report;
use crate::shield::drop_shielded;
use crate::signals::Signal;
use crate::status::Stage;
use crate::sync::lock;
use crate::systemd;
use crate::task::{Ended, TaskResult, catch, chain, end_of};
use crate::time::{Short, real_now};
use crate::watchdog::last_words;

/// How long the body may go on when the shutdown is over, to say a last word.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The longest that any single wait takes when the process leaves.
const MOST_SHARE: Duration = Duration::from_secs(1);

/// Runs `body` as the whole of a process, and returns its exit code.
///
/// Short for [`Runner::new`] and [`Runner::run`].
///
/// ```no_run
/// use adieu_core::Phase;
///
/// fn main() -> std::process::ExitCode {
///     adieu_core::main(async |shutdown| {
///         shutdown.add_task(Phase::SERVICE_STOP, "say goodbye", async |_| println!("adieu"))?;
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

/// Owns the process.
///
/// It builds a multi-threaded tokio runtime, installs signals before anything slow, and runs the
/// body. When the body returns or fails, or a signal comes, also during start-up, the shutdown
/// runs. Then guards are dropped, blocking threads get what is left of the reserve, and the exit
/// code is returned. A body that returns an error that only says that the shutdown has begun, also
/// inside another error, has not failed. A watchdog ends the process at the deadline if all else fails.
/// With `run-by-process-hook = off` no signals are installed, and the end of the body does not run the
/// shutdown.
///
/// If nobody has set a `tracing` subscriber, what happens is said on stderr. With the feature
/// `systemd` it is said to systemd, too; then call [`Shutdown::started`] when start-up has ended.
#[derive(Debug)]
#[must_use = "a runner does nothing until it runs"]
pub struct Runner {
    config: Result<Config, ConfigError>,
    signals: Vec<Signal>,
    runtime: tokio::runtime::Builder,
}

// === impl Runner ===

impl Runner {
    /// A runner configured by the environment; see [`Config::from_env`]. A mistake there is
    /// reported by [`Runner::run`].
    pub fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.enable_all();
        Self { config: Config::from_env(), signals: vec![Signal::TERM, Signal::INT], runtime }
    }

    /// Uses this configuration instead of the environment's.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Ok(config);
        self
    }

    /// Listens to these signals instead of SIGTERM and SIGINT.
    pub fn signals(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.signals = signals.into_iter().collect();
        self
    }

    /// Uses this many worker threads instead of one for each core.
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.runtime.worker_threads(threads.max(1));
        self
    }

    /// Changes how the runtime is built: its threads, their names, their stacks.
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
                let text = format!("failed to start       {}", chain(&*error));
                last_words(move || text);
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
        systemd::attend(&shutdown);
        drop(entered);

        let (ended, report) = run_body(&runtime, &shutdown, body);
        let code = conclude(&shutdown, ended, report.as_ref());
        *lock(&exit.code) = Some(code);

        // The waits fit into what the watchdog allows, and leave a fifth of it unused.
        let _ = shutdown.shared().journal().flush(share_of_exit(&shutdown, 4));
        flush_shared(share_of_exit(&shutdown, 4));
        drop_guards(&shutdown, share_of_exit(&shutdown, 3));
        runtime.shutdown_timeout(share_of_exit(&shutdown, 2));
        // The watchdog still waits, also when the shutdown has been dropped.
        exit.has_returned.store(true, Ordering::Relaxed);
        Ok(code)
    }
}

impl Default for Runner {
    fn default() -> Self {
        Self::new()
    }
}

/// How far the main thread is on its way out.
#[derive(Default)]
struct ExitProgress {
    /// Known when the body has ended and has been dropped.
    code: Mutex<Option<u8>>,
    has_returned: AtomicBool,
}

/// Returns what the watchdog does if the shutdown is over and the main thread does not end: a
/// destructor or an exit handler of the application hangs. The outcome is known all the same.
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

/// Runs the body until it ends or the shutdown is over, and the shutdown until it is over.
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
    let mut body = Box::pin(catch(body));
    let (mut ended, report) = wait_for_both(runtime, shutdown, body.as_mut());
    let entered = runtime.enter();
    if let Some(message) = drop_shielded(body) {
        ended = Some(Ended::Panicked(message));
    }
    drop(entered);
    // It may have been amended since.
    (ended, shutdown.report().or(report))
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
            // If a signal was first, this joins the shutdown that is in progress.
            Ok(ended) => return (Some(ended), shutdown.run(Reason::ProcessExit).wait().ok()),
            Err(report) => report,
        };
        // Without the runtime's timers: its workers may all be blocked.
        let entered = runtime.enter();
        let within = share_of_exit(shutdown, 4).min(LAST_WORD);
        let ended = park::block_on_until(body.as_mut(), real_now() + within);
        drop(entered);
        // Unless the body's last word was to resume a shutdown that was aborted.
        if ended.is_some() || shutdown.stage() == Stage::Over {
            let report = shutdown.completed().wait().ok().or(report);
            return (ended, report);
        }
    }
}

/// How a body that returned this has ended.
pub(crate) fn end_of_body(shutdown: &Shutdown, returned: impl TaskResult) -> Ended {
    match returned.into_result() {
        // It was told to end before it had begun: that is an end like any other.
        Err(error) if shutdown.shared().is_refusal(&*error) => {
            let error = chain(&*error);
            shutdown.shared().journal().log(move || info!(error, "start-up interrupted"));
            Ended::Finished
        }
        ended => end_of(ended),
    }
}

/// Logs how the body failed, if it did, stores the report, and returns the exit code.
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
    let failed = match body {
        Some(Ended::Failed(error)) => Some(error),
        Some(Ended::Panicked(message)) => Some(format!("panicked: {message}").into()),
        Some(Ended::Finished | Ended::Aborted | Ended::LeftBehind) | None => None,
    };
    if let Some(error) = &failed {
        let error = Arc::clone(error);
        shared.journal().log(move || error!(error = &*error, "body failed"));
    }
    if let (Some(path), Some(report)) = (&shared.config().report_file, report)
        && let Err(error) = write_report(path, report, within)
    {
        shared.journal().log(move || error!(%error, "failed to write the report"));
    }
    match (failed, report) {
        (Some(_), _) => ExitCode::FAILED,
        (None, Some(report)) => report.exit_code,
        // It was not to run, and nothing has begun it.
        (None, None) if shutdown.stage() == Stage::Up => ExitCode::CLEAN,
        (None, None) => ExitCode::UNCLEAN,
    }
}

/// A part of the time that the watchdog allows, a second at most.
fn share_of_exit(shutdown: &Shutdown, part: u32) -> Duration {
    let left = shutdown.shared().process().time_to_exit().unwrap_or(MOST_SHARE);
    (left / part).min(MOST_SHARE)
}

/// Drops what was to be kept until the exit, the latest first, and waits for that only so long:
/// a log flusher that hangs must not keep the process alive.
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

/// Writes the report, on another thread: a pipe that no process reads blocks, as does a dead disk.
fn write_report(path: &Path, report: &Arc<Report>, within: Duration) -> std::io::Result<()> {
    let (path, report) = (path.to_owned(), Arc::clone(report));
    let (done, written) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("adieu report".into()).spawn(move || {
        let write = || {
            let mut file = std::fs::File::create(&path)?;
            serde_json::to_writer_pretty(&mut file, &*report)?;
            file.write_all(b"\n")
        };
        let _ = done.send(write());
    })?;
    written.recv_timeout(within).unwrap_or_else(|_| {
        let after = Short(within);
        Err(std::io::Error::other(format!("report-file was not written within {after}")))
    })
}
