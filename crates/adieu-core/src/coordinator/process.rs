//! The shutdown and the process it lives in: signals, the platform's deadline, the watchdog, and
//! what is kept until the end.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::warn;

use super::shared::Shared;
use crate::config::Resolved;
use crate::journal::Line;
use crate::policy::ExitCode;
use crate::reason::Reason;
use crate::rung::Rung;
use crate::shield::drop_each_shielded;
use crate::signals::{Listener, Signal, SignalError, end_now};
use crate::status::Stage;
use crate::sync::lock;
use crate::time::now;
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
            let Some(shared) = weak.upgrade() else { return };
            let is_over = shared.stage() == Stage::Over;
            if shared.receive(signal) == Some(Rung::Exit) {
                let code = signal.exit_code();
                let why = if is_over { "the shutdown is over" } else { "exit at once" };
                last_words(move || format!("{signal:<21} {why}, exit code {code}"));
                end_now(code);
            }
        })?;
        if let Err(error) = self.adopt_platform() {
            started.stop()?; // Refused: leave the process as it was.
            return Err(error);
        }
        *listener = Some(started);
        Ok(())
    }

    /// From here on the deadline is what the platform allows.
    fn adopt_platform(&self) -> Result<(), SignalError> {
        let Resolved { kill_after, how, advice } =
            self.config.kill_after.resolve(|name| std::env::var(name).ok());
        let mut core = lock(&self.core);
        let before = std::mem::replace(&mut core.budget.kill_after, kill_after);
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

    pub(super) fn receive(self: &Arc<Self>, signal: Signal) -> Option<Rung> {
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
        self.journal.note(Line::Signal { signal, rung });
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

    /// How long the watchdog lets the process live; `None` if that is not limited.
    pub(crate) fn time_to_exit(&self) -> Option<Duration> {
        self.watchdog.left()
    }

    /// For the runner: the process itself must be over by the deadline, not only the phases; and
    /// what happens is said, if need be on stderr.
    pub(crate) fn own_process(&self) {
        self.owns_process.store(true, Ordering::Relaxed);
        self.journal.use_stderr();
    }

    pub(super) fn keep_until_exit(&self, guard: Box<dyn Any + Send>) {
        lock(&self.guards).0.push(guard);
    }

    pub(crate) fn take_guards(&self) -> Guards {
        std::mem::take(&mut *lock(&self.guards))
    }
}
