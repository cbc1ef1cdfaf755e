//! The shutdown and the process it lives in: signals, the platform's deadline, the watchdog, and
//! what is kept until the end.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tracing::{error, warn};

use super::completion::Completion;
use super::driver;
use super::home::{Home, look_at};
use super::run::Run;
use super::shared::{LEAST_EXIT, Shared};
use crate::config::Resolved;
use crate::deadline::Deadline;
use crate::journal::Line;
use crate::park;
use crate::policy::ExitCode;
use crate::reason::Reason;
use crate::report::Report;
use crate::rung::Rung;
use crate::shield::drop_each_shielded;
use crate::signals::{Listener, Signal, SignalError, end_now};
use crate::status::Stage;
use crate::sync::lock;
use crate::time::{now, real_now};
use crate::watchdog::last_words;

/// What is kept until the process ends. Dropped the latest first, each whether or not the
/// destructors of others panic.
#[derive(Default)]
pub(crate) struct Guards(Vec<Box<dyn Any + Send>>);

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

impl Shared {
    pub(super) fn install_signals(
        self: &Arc<Self>,
        signals: Vec<Signal>,
    ) -> Result<(), SignalError> {
        let mut signals = signals;
        signals.sort();
        signals.dedup();
        if signals.is_empty() {
            return Err(SignalError::NoneNamed);
        }
        let mut listener = lock(&self.listener);
        if let Some(listener) = &*listener {
            if listener.signals() == signals {
                return Ok(());
            }
            return Err(SignalError::OthersInstalled { installed: listener.signals().to_vec() });
        }
        let weak = Arc::downgrade(self);
        let started = Listener::start(signals, move |signal| {
            let Some(shared) = weak.upgrade() else { return false };
            let is_over = shared.stage() == Stage::Over;
            if shared.receive(signal, None) == Some(Rung::Exit) {
                let code = signal.exit_code();
                let why = if is_over { "the shutdown is over" } else { "exit at once" };
                last_words(move || format!("{signal:<21} {why}, exit code {code}"));
                end_now(code);
            }
            true
        })?;
        if let Err(error) = self.adopt_platform() {
            started.stop()?; // Refused: leave the process as it was.
            return Err(error);
        }
        *listener = Some(started);
        Ok(())
    }

    /// From here on the deadline is what the platform allows.
    fn adopt_platform(self: &Arc<Self>) -> Result<(), SignalError> {
        let Resolved { kill_after, source, advice } =
            self.config.kill_after.resolve(|name| std::env::var(name).ok());
        let mut core = lock(&self.core);
        let before = std::mem::replace(&mut core.budget.kill_after, kill_after);
        let how = source.to_string();
        core.source = source;
        // Signals are installed inside the runtime that the tasks are to run on.
        core.home = core.home.take().or_else(|| Handle::try_current().ok());
        let over = core.over_budget();
        if let Some(check) = over.clone().filter(|_| self.config.strict) {
            core.budget.kill_after = before;
            return Err(SignalError::OverBudget { check: Box::new(check) });
        }
        drop(core);
        self.journal.note(Line::Deadline { kill_after, how });
        if let Some(advice) = advice {
            self.journal.log(move || warn!(advice, "time until the kill is not known"));
        }
        self.warn_of(over);
        Ok(())
    }

    pub(super) fn remove_signals(&self) -> std::io::Result<()> {
        let listener = lock(&self.listener).take();
        listener.map_or(Ok(()), Listener::stop)
    }

    /// Does what the signal would do. `via` names what it came by, if it is not a real signal.
    pub(super) fn receive(
        self: &Arc<Self>,
        signal: Signal,
        via: Option<&'static str>,
    ) -> Option<Rung> {
        let rung = lock(&self.ladder).climb(now(), signal)?;
        if self.stage() == Stage::Over && !self.owns_process.load(Ordering::Relaxed) {
            // There is nothing left to wait for, and no runner that leaves.
            return Some(Rung::Exit);
        }
        if rung == Rung::Exit {
            return Some(rung);
        }
        // Only noted: whoever listens to the log may be what hangs, and the next signal must be
        // heard. The driver says it.
        self.journal.note(Line::Signal { signal, via, rung });
        if self.stage() == Stage::Up {
            self.begin(Reason::ProcessTerminate(signal), None);
        } else if rung == Rung::Graceful {
            // It was already under way for another reason; from here on the platform counts.
            let allowed = lock(&self.core).budget.allowed();
            if let Some(allowed) = allowed {
                self.shorten(allowed);
            }
        }
        if rung == Rung::HardStop && self.stage() == Stage::ShuttingDown {
            // The driver does the same, if its runtime still lets it.
            let reserve = lock(&self.core).run.as_ref().map(|run| run.machine.limits().reserve);
            self.watchdog.arm(reserve.unwrap_or_default());
        }
        self.wish(|wishes| wishes.rung = wishes.rung.max(rung));
        Some(rung)
    }

    pub(super) fn start_watchdog(self: &Arc<Self>) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        self.watchdog.start(ExitCode::WATCHDOG, move || match weak.upgrade() {
            Some(shared) if shared.stage() == Stage::Over => "the process to exit".into(),
            Some(shared) => shared.status().waiting_line(),
            None => "nothing".into(),
        })
    }

    /// The process must be over before long, if the watchdog was started.
    pub(crate) fn leave_process(&self) {
        self.watchdog.arm_exit(self.config.reserve.max(LEAST_EXIT));
    }

    /// Has the watchdog call this at its deadline; see [`Watchdog::leave_by`].
    ///
    /// [`Watchdog::leave_by`]: crate::watchdog::Watchdog::leave_by
    pub(crate) fn leave_by(
        &self,
        leave: impl FnOnce(Duration) -> Option<(u8, String)> + Send + 'static,
    ) {
        self.watchdog.leave_by(leave);
    }

    /// How long the watchdog lets the process live; `None` if that is not limited.
    pub(crate) fn time_to_exit(&self) -> Option<Duration> {
        self.watchdog.left()
    }

    /// For the runner: the process itself must be over by the deadline, not only the phases; and
    /// what happens is said, if need be on stderr.
    pub(crate) fn own_process(&self) {
        self.own_exit_code();
        self.journal.use_stderr();
    }

    /// The process ends with the code that `main` returns, also with `exit-process`.
    pub(crate) fn own_exit_code(&self) {
        self.owns_process.store(true, Ordering::Relaxed);
    }

    /// Whether the end of the process runs the shutdown, or has one to wait for.
    pub(crate) fn runs_on_exit(&self) -> bool {
        self.config.triggers.process_hook || self.stage() != Stage::Up
    }

    /// Runs the shutdown, or joins the one that runs, and blocks this thread until it is over, but
    /// not beyond its deadline.
    ///
    /// This thread may be the only one of the runtime that the tasks run on, or that runtime may have
    /// been dropped. The shutdown then gets a runtime of its own.
    pub(crate) fn run_blocking(self: &Arc<Self>, reason: Reason) -> Option<Arc<Report>> {
        if let Some(report) = self.report() {
            return Some(report);
        }
        let own_runtime = self.replace_runtime();
        self.begin(reason, None);
        let left = self.deadline().map_or(Duration::ZERO, Deadline::remaining);
        let mut completion = Completion::new(self);
        let waited =
            park::block_on_until(Pin::new(&mut completion), real_now() + left + LEAST_EXIT);
        if let Some(runtime) = own_runtime {
            runtime.shutdown_background(); // Dropping it is not allowed inside another one.
        }
        let error = match waited {
            Some(Ok(report)) => {
                let owns_exit_code = self.owns_process.load(Ordering::Relaxed);
                let exits = |run: &Run| run.policy.exit_process && !owns_exit_code;
                if lock(&self.core).run.as_ref().is_some_and(exits) {
                    std::thread::sleep(LEAST_EXIT); // The watchdog ends the process meanwhile.
                }
                return Some(report);
            }
            Some(Err(error)) => error.to_string(),
            None => "the shutdown was not over at its deadline".into(),
        };
        self.journal.log(move || error!(error, "there is no report"));
        None
    }

    /// Brings a runtime for the tasks if theirs cannot run them while this thread blocks.
    fn replace_runtime(self: &Arc<Self>) -> Option<Runtime> {
        let home = self.home().or_else(|| Handle::try_current().ok())?;
        let has_workers = home.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let is_worker = tokio::task::try_id().is_some();
        let why = match look_at(&home) {
            Home::Runs => return None,
            // Its workers are busy, and may not be for long; deadlines hold all the same.
            Home::StandsStill if has_workers && !is_worker => return None,
            Home::StandsStill => "the thread that runs it is leaving",
            Home::Gone => "it was dropped",
        };
        // Two, so that a task which blocks one does not hold up the others.
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                self.journal.log(move || error!(%error, "failed to build a runtime"));
                return None;
            }
        };
        let effect = "sockets, timers and spawned tasks of that runtime make no progress";
        let advice = "await the shutdown before main returns";
        self.journal.log(move || warn!(why, effect, advice, "the shutdown leaves its runtime"));
        let mut core = lock(&self.core);
        core.home = Some(runtime.handle().clone());
        let is_running = core.run.is_some();
        drop(core);
        if is_running {
            driver::take_over(self, runtime.handle());
        }
        Some(runtime)
    }

    pub(super) fn keep_until_exit(&self, guard: Box<dyn Any + Send>) {
        lock(&self.guards).0.push(guard);
    }

    pub(crate) fn take_guards(&self) -> Guards {
        std::mem::take(&mut *lock(&self.guards))
    }
}
