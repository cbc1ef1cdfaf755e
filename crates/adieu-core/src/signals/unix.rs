//! Signals on Unix, through signal-hook.

mod aftermath;
mod others;

use std::io;
use std::thread::JoinHandle;

use signal_hook::consts::{FORBIDDEN, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::{HIGHEST, Signal, SignalError};

pub(super) const TERM: i32 = SIGTERM;
pub(super) const INT: i32 = SIGINT;
pub(super) const HUP: i32 = SIGHUP;
pub(super) const QUIT: i32 = SIGQUIT;
pub(super) const USR1: i32 = SIGUSR1;
pub(super) const USR2: i32 = SIGUSR2;

/// Hears signals until it is stopped.
pub(crate) struct Listener {
    signals: Vec<Signal>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

// === impl Listener ===

impl Listener {
    pub(crate) fn start(
        signals: Vec<Signal>,
        hear: impl Fn(Signal) + Send + 'static,
    ) -> Result<Self, SignalError> {
        // signal-hook panics above its own limit.
        let cannot =
            |signal: &&Signal| FORBIDDEN.contains(&signal.0) || !(1..=HIGHEST).contains(&signal.0);
        if let Some(&signal) = signals.iter().find(cannot) {
            return Err(SignalError::Uncatchable { signal });
        }
        let numbers = signals.iter().map(|signal| signal.0);
        let mut source = aftermath::install(&signals, || Signals::new(numbers))?;
        let handle = source.handle();
        let thread = std::thread::Builder::new().name("adieu signals".into()).spawn(move || {
            for signal in source.forever() {
                hear(Signal(signal));
            }
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                aftermath::restore(&signals)?; // Leave the process as it was.
                return Err(error.into());
            }
        };
        Ok(Self { signals, handle, thread: Some(thread) })
    }

    pub(crate) fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Stops listening, and restores what there was before.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let restored = aftermath::restore(&self.signals);
        self.handle.close();
        // A signal may be what ends it.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
        restored
    }
}

impl Drop for Listener {
    /// Nobody is left to hear them: the process must not go deaf.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub(super) fn name(signal: i32) -> Option<&'static str> {
    signal_hook::low_level::signal_name(signal)
}

/// Ends the process without running anything else: exit hooks may be what hangs.
pub(crate) fn end_now(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}
