//! Signals on Unix, through signal-hook.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use signal_hook::consts::{FORBIDDEN, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::{Signal, SignalError};
use crate::sync::lock;

pub(super) const TERM: i32 = SIGTERM;
pub(super) const INT: i32 = SIGINT;
pub(super) const HUP: i32 = SIGHUP;
pub(super) const QUIT: i32 = SIGQUIT;
pub(super) const USR1: i32 = SIGUSR1;
pub(super) const USR2: i32 = SIGUSR2;

/// The highest number that a signal has anywhere; signal-hook panics above its own limit.
const MOST: i32 = 64;

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
        let cannot =
            |signal: &&Signal| FORBIDDEN.contains(&signal.0) || !(1..=MOST).contains(&signal.0);
        if let Some(&signal) = signals.iter().find(cannot) {
            return Err(SignalError::Uncatchable { signal });
        }
        let mut source = Signals::new(signals.iter().map(|signal| signal.0))?;
        let handle = source.handle();
        let thread = std::thread::Builder::new().name("adieu signals".into()).spawn(move || {
            for signal in source.forever() {
                hear(Signal(signal));
            }
        })?;
        default_action::suspend(&signals);
        Ok(Self { signals, handle, thread: Some(thread) })
    }

    pub(crate) fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Stops hearing; the default action comes back.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.handle.close();
        // A signal may be what ends it.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
        default_action::restore(&self.signals)
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

/// Brings the default action back.
///
/// A handler, once installed, stays installed, and one with nothing to do swallows the signal. So
/// for each signal that was ever removed we register an action that acts out the default while
/// nobody in this process has the signal installed.
mod default_action {
    use super::{Arc, AtomicBool, HashMap, Mutex, Ordering, Signal, io, lock};

    #[derive(Default)]
    struct Use {
        installed: usize,
        acted_out: Option<Arc<AtomicBool>>,
    }

    static USES: Mutex<Option<HashMap<i32, Use>>> = Mutex::new(None);

    pub(super) fn suspend(signals: &[Signal]) {
        let mut uses = lock(&USES);
        for signal in signals {
            let entry = uses.get_or_insert_default().entry(signal.0).or_default();
            entry.installed += 1;
            if let Some(acted_out) = &entry.acted_out {
                acted_out.store(false, Ordering::SeqCst);
            }
        }
    }

    pub(super) fn restore(signals: &[Signal]) -> io::Result<()> {
        let mut uses = lock(&USES);
        for signal in signals {
            let entry = uses.get_or_insert_default().entry(signal.0).or_default();
            entry.installed = entry.installed.saturating_sub(1);
            if entry.installed > 0 {
                continue;
            }
            match &entry.acted_out {
                Some(acted_out) => acted_out.store(true, Ordering::SeqCst),
                None => {
                    let acted_out = Arc::new(AtomicBool::new(true));
                    signal_hook::flag::register_conditional_default(
                        signal.0,
                        Arc::clone(&acted_out),
                    )?;
                    entry.acted_out = Some(acted_out);
                }
            }
        }
        Ok(())
    }
}
