//! Installs and removes signals, and adopts the limit of the platform that sends them.

use std::sync::Arc;

use tracing::warn;

use super::Shutdown;
use super::process::ExitDecision;
use super::shared::Shared;
use crate::budget::BudgetCheck;
use crate::config::Resolved;
use crate::journal::Line;
use crate::report::Finding;
use crate::rung::Rung;
use crate::signals::{Listener, Signal, SignalError, end_now};
use crate::status::Stage;
use crate::time::Duration;
use crate::watchdog::write_final_line;

/// The limit of the platform, to be logged.
struct PlatformLimit {
    kill_after: Option<Duration>,
    how: String,
    advice: Option<String>,
    over: Option<BudgetCheck>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Runs the shutdown on the signals of [`Signal::DEFAULT`]: SIGTERM and SIGINT. See [`Shutdown::install_signals_for`].
    ///
    /// # Errors
    ///
    /// As [`Shutdown::install_signals_for`].
    pub fn install_signals(&self) -> Result<(), SignalError> {
        self.install_signals_for(Signal::DEFAULT)
    }

    /// Runs the shutdown when one of these signals is received. Repeated signals climb the ladder; see
    /// [`Rung`].
    ///
    /// A thread of its own receives signals, so they are also received when the runtime is blocked. On
    /// the last rung, that thread ends the process. After the shutdown is over, one signal ends the
    /// process.
    ///
    /// From this call on, the deadline is the time that the platform allows. Under systemd this
    /// function queries systemd for it, and blocks for a second at most. If the same signals are
    /// installed already, this does nothing.
    ///
    /// # Errors
    ///
    /// If a signal cannot be caught, other signals are installed already, or the system refuses. In
    /// strict mode, also if the worst case is longer than the platform allows.
    pub fn install_signals_for(
        &self,
        signals: impl IntoIterator<Item = Signal>,
    ) -> Result<(), SignalError> {
        self.shared().install_signals(signals.into_iter().collect())
    }

    /// Stops listening to the signals, and restores their previous effect: they are delivered to
    /// listeners of the application, including listeners that were added later. If there are none,
    /// they have their default action, which for most signals ends the process. As process 1, the
    /// process exits with 128 and the number of the signal.
    ///
    /// # Errors
    ///
    /// If the system refuses to restore the default action.
    pub fn remove_signals(&self) -> std::io::Result<()> {
        let listener = self.shared().process.listener.lock().take();
        listener.map_or(Ok(()), Listener::stop)
    }

    /// Has the effect of the signal. Returns the rung that is reached. Returns `None` if the signal
    /// is an echo of the last one.
    ///
    /// For signals that arrive in other ways. It never ends the process: on [`Rung::Exit`], the caller
    /// must do so.
    #[must_use = "on the last rung, the caller must end the process"]
    pub fn receive(&self, signal: Signal) -> Option<Rung> {
        self.shared().receive(signal, None)
    }

    pub(crate) fn receive_request(&self, via: &'static str) {
        let _ = self.shared().receive(Signal::TERM, Some(via));
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn install_signals(
        self: &Arc<Self>,
        mut signals: Vec<Signal>,
    ) -> Result<(), SignalError> {
        signals.sort();
        signals.dedup();
        if signals.is_empty() {
            return Err(SignalError::NoneNamed);
        }
        if let Some(adopted) = self.install_once(signals)? {
            self.log_adopted(adopted);
        }
        Ok(())
    }

    /// Returns `None` if the same signals are installed already.
    fn install_once(
        self: &Arc<Self>,
        signals: Vec<Signal>,
    ) -> Result<Option<PlatformLimit>, SignalError> {
        let mut listener = self.process.listener.lock();
        if let Some(listener) = &*listener {
            if listener.signals() == signals {
                return Ok(None);
            }
            return Err(SignalError::OthersInstalled { installed: listener.signals().to_vec() });
        }
        let weak = Arc::downgrade(self);
        let started = Listener::start(signals, move |signal| {
            let Some(shared) = weak.upgrade() else { return false };
            shared.receive_or_exit(signal);
            true
        })?;
        match self.adopt_platform() {
            Ok(adopted) => {
                *listener = Some(started);
                Ok(Some(adopted))
            }
            Err(error) => {
                started.stop()?; // Leave the process as it was.
                Err(error)
            }
        }
    }

    /// Receives a signal on the thread of the listener. On the last rung, it ends the process.
    fn receive_or_exit(self: &Arc<Self>, signal: Signal) {
        let is_over = self.progress.stage() == Stage::Over;
        if self.receive(signal, None) == Some(Rung::Exit) {
            let code = signal.exit_code();
            let why = if is_over { "the shutdown is over" } else { "exit at once" };
            let what = format!("{signal} ended the process: {why}");
            match self.process.decide_exit(ExitDecision::Forced(code)) {
                Ok(()) => self.conclude_forced_exit(code, Finding::new("signal", what)),
                Err(ExitDecision::Main(decided)) => end_now(decided),
                Err(ExitDecision::Forced(_)) => return, // The watchdog ends the process now.
            }
            write_final_line(move || format!("{signal:<21} {why}, exit code {code}"));
            end_now(code);
        }
    }

    /// From now on, the deadline is the time that the platform allows.
    fn adopt_platform(&self) -> Result<PlatformLimit, SignalError> {
        let Resolved { kill_after, source, advice } =
            self.config().kill_after.resolve(|name| std::env::var(name).ok());
        let mut core = self.core.lock();
        let before = std::mem::replace(&mut core.allowance.budget.kill_after, kill_after);
        let how = source.to_string();
        core.allowance.source = source;
        // Signals are installed inside the runtime on which the tasks are to run.
        core.adopt_runtime();
        let over = core.over_budget();
        if let Some(check) = over.clone().filter(|_| self.config().strict) {
            core.allowance.budget.kill_after = before;
            return Err(SignalError::OverBudget { check: Box::new(check) });
        }
        Ok(PlatformLimit { kill_after, how, advice, over })
    }

    fn log_adopted(self: &Arc<Self>, adopted: PlatformLimit) {
        let PlatformLimit { kill_after, how, advice, over } = adopted;
        self.journal().note(Line::Deadline { kill_after, how });
        if let Some(advice) = advice {
            self.journal().log(move || warn!(advice, "grace period of the platform is not known"));
        }
        self.warn_of(over);
    }
}
