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
    /// Starts a thread that calls `hear` for each signal. It returns false if it could not handle the
    /// signal; then the signal does what it does without a listener.
    pub(crate) fn start(
        signals: Vec<Signal>,
        hear: impl Fn(Signal) -> bool + Send + 'static,
    ) -> Result<Self, SignalError> {
        // signal-hook panics above its own limit.
        let cannot =
            |signal: &&Signal| FORBIDDEN.contains(&signal.0) || !(1..=HIGHEST).contains(&signal.0);
        if let Some(&signal) = signals.iter().find(cannot) {
            return Err(SignalError::Uncatchable { signal });
        }
        let numbers = signals.iter().map(|signal| signal.0);
        let source = aftermath::install(&signals, || Signals::new(numbers))?;
        let handle = source.handle();
        let thread = std::thread::Builder::new().name("adieu signals".into());
        let thread = thread.spawn(move || listen(source, hear));
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

/// Calls `hear` until the source is closed, also for what was received before that: an iterator of
/// signal-hook would drop it.
fn listen(mut source: Signals, hear: impl Fn(Signal) -> bool) {
    let mut unheard = Vec::new();
    loop {
        // Looked at first: what is pending then is received after this.
        let is_last = source.is_closed();
        let received = if is_last { source.pending() } else { source.wait() };
        unheard.extend(received.map(Signal).filter(|signal| !hear(*signal)));
        if is_last {
            break;
        }
    }
    // What there was before is restored by now.
    for signal in unheard {
        aftermath::receive(signal.0);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn s45_a_signal_that_is_received_before_the_removal_is_handled() {
        let (heard, hears) = channel();
        let (release, held) = channel::<()>();
        let listener = Listener::start(vec![Signal::USR2], move |signal| {
            heard.send(signal).unwrap();
            let _ = held.recv();
            true
        });
        let (listener, raise) = (listener.unwrap(), || {
            signal_hook::low_level::raise(SIGUSR2).unwrap();
        });
        raise();
        assert_eq!(hears.recv(), Ok(Signal::USR2));
        raise(); // The thread is busy with the first one.
        let handle = listener.handle.clone();
        let stopping = std::thread::spawn(move || listener.stop());
        while !handle.is_closed() {
            std::thread::yield_now();
        }
        drop(release);
        stopping.join().unwrap().unwrap();
        assert_eq!(hears.recv(), Ok(Signal::USR2));
        assert!(hears.recv().is_err(), "twice raised, twice heard");
    }
}
