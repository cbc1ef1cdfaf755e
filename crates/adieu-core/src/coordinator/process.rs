//! The process in which a shutdown runs: signals, the exit guards, the watchdog.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Shutdown;
use super::ladder::Ladder;
use super::locks;
use super::shared::Shared;
use crate::policy::ExitCode;
use crate::rung::Rung;
use crate::shield::drop_each_shielded;
use crate::signals::{Listener, Signal, SignalError};
use crate::status::Stage;
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
    /// How long the process may take to exit after the last phase.
    time_to_exit: Duration,
}

/// Values that are kept until the process ends. They are dropped in reverse order. A destructor that
/// panics does not affect the others.
#[derive(Default)]
pub(crate) struct Guards(Vec<Box<dyn Any + Send>>);

// === impl Shutdown ===

impl Shutdown {
    /// Runs the shutdown on SIGTERM and SIGINT. See [`Shutdown::install_signals_for`].
    ///
    /// # Errors
    ///
    /// As [`Shutdown::install_signals_for`].
    pub fn install_signals(&self) -> Result<(), SignalError> {
        self.install_signals_for([Signal::TERM, Signal::INT])
    }

    /// Runs the shutdown when one of these signals is received. Repeated signals climb the ladder; see
    /// [`Rung`].
    ///
    /// A thread of its own receives signals, so they are also received when the runtime is blocked. On
    /// the last rung, that thread ends the process. After the shutdown is over, one signal ends the
    /// process.
    ///
    /// From this call on, the deadline is the time that the platform allows. Under systemd this function
    /// asks systemd for it, and blocks for a second at most. If the same signals are installed already,
    /// this does nothing.
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

    /// Stops listening to the signals, and restores what they did before: they are delivered to
    /// listeners of the application, including listeners that were added later. If there are none, they
    /// have their default action, which for most signals ends the process. As process 1, the process
    /// exits with 128 and the number of the signal.
    ///
    /// # Errors
    ///
    /// If the system refuses to restore the default action.
    pub fn remove_signals(&self) -> std::io::Result<()> {
        let listener = self.shared().process.listener.lock().take();
        listener.map_or(Ok(()), Listener::stop)
    }

    /// Does what the signal would do, and returns the rung that is reached. Returns `None` if the signal
    /// is an echo of the last one.
    ///
    /// For signals that arrive in other ways. It never ends the process: on [`Rung::Exit`], the caller
    /// must do so.
    #[must_use = "on the last rung, the caller must end the process"]
    pub fn receive(&self, signal: Signal) -> Option<Rung> {
        self.shared().receive(signal, None)
    }

    /// Does what SIGTERM would do, for a request that arrived in another way, which is logged as `via`.
    /// It never ends the process. For adapters.
    #[doc(hidden)]
    pub fn receive_request(&self, via: &'static str) {
        let _ = self.shared().receive(Signal::TERM, Some(via));
    }

    /// Starts a thread that ends the process at the deadline of the shutdown, if the process still runs
    /// then. [`main`](crate::main) does this automatically.
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
        self.shared().process.guards.lock().0.push(Box::new(guard));
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn start_watchdog(self: &Arc<Self>) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        self.process.watchdog.start(ExitCode::WATCHDOG, move || match weak.upgrade() {
            Some(shared) if shared.progress.stage() == Stage::Over => "the process to exit".into(),
            Some(shared) => shared.status().waiting_line(),
            None => "nothing".into(),
        })
    }

    /// Whether the end of the process runs the shutdown, or must wait for one that has begun.
    pub(crate) fn runs_on_exit(&self) -> bool {
        self.config().triggers.process_hook || self.progress.stage() != Stage::Up
    }
}

// === impl Process ===

impl Process {
    /// Limits the exit of the process to `reserve`, but not to less than [`LEAST_EXIT`].
    pub(super) fn new(reserve: Duration) -> Self {
        Self {
            listener: OrderedMutex::new(locks::LISTENER, None),
            ladder: OrderedMutex::new(locks::LADDER, Ladder::default()),
            guards: OrderedMutex::new(locks::GUARDS, Guards::default()),
            watchdog: Watchdog::new(),
            owns_exit_code: AtomicBool::new(false),
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
