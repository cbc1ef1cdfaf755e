//! Signals on Unix, through signal-hook.

mod foreign_listeners;
mod removed;

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

/// Receives signals until it is stopped.
pub(crate) struct Listener {
    signals: Vec<Signal>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

// === impl Listener ===

impl Listener {
    /// Starts a thread that calls `handle_signal` for each signal. It returns false if it could not
    /// handle the signal; then the signal has the effect that it has without a listener.
    pub(crate) fn start(
        signals: Vec<Signal>,
        handle_signal: impl Fn(Signal) -> bool + Send + 'static,
    ) -> Result<Self, SignalError> {
        // signal-hook panics above its own limit.
        let cannot =
            |signal: &&Signal| FORBIDDEN.contains(&signal.0) || !(1..=HIGHEST).contains(&signal.0);
        if let Some(&signal) = signals.iter().find(cannot) {
            return Err(SignalError::Uncatchable { signal });
        }
        let numbers = signals.iter().map(|signal| signal.0);
        let source = removed::install(&signals, || Signals::new(numbers))?;
        let handle = source.handle();
        let thread = std::thread::Builder::new().name("adieu signals".into());
        let thread = thread.spawn(move || listen(source, handle_signal));
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                removed::restore(&signals)?; // The error leaves the process unchanged.
                return Err(error.into());
            }
        };
        Ok(Self { signals, handle, thread: Some(thread) })
    }

    pub(crate) fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Stops listening, and restores the previous dispositions.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let restored = removed::restore(&self.signals);
        self.handle.close();
        // A handler of a signal may drop the listener: a thread cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
        restored
    }
}

/// Calls `handle` until the source is closed, including for signals that were received before that.
/// An iterator of signal-hook would drop those.
fn listen(mut source: Signals, handle: impl Fn(Signal) -> bool) {
    let mut unhandled = Vec::new();
    loop {
        // Checked first, so that the signals that are pending when the source closes are received.
        let is_last = source.is_closed();
        let received = if is_last { source.pending() } else { source.wait() };
        unhandled.extend(received.map(Signal).filter(|signal| !handle(*signal)));
        if is_last {
            break;
        }
    }
    // The previous dispositions are restored by now.
    for signal in unhandled {
        removed::receive(signal.0);
    }
}

impl Drop for Listener {
    /// Restores the previous dispositions, so that the process still reacts to its signals.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub(super) fn name(signal: i32) -> Option<&'static str> {
    signal_hook::low_level::signal_name(signal)
}

/// Ends the process without running exit handlers, because they may hang.
pub(crate) fn end_now(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn s567_a_signal_received_before_the_removal_is_handled() {
        let (send, handled) = channel();
        let (release, held) = channel::<()>();
        let listener = Listener::start(vec![Signal::USR2], move |signal| {
            send.send(signal).unwrap();
            let _ = held.recv();
            true
        });
        let (listener, raise) = (listener.unwrap(), || {
            signal_hook::low_level::raise(SIGUSR2).unwrap();
        });
        raise();
        assert_eq!(handled.recv(), Ok(Signal::USR2));
        raise(); // The thread is busy with the first one.
        let handle = listener.handle.clone();
        let stopping = std::thread::spawn(move || listener.stop());
        while !handle.is_closed() {
            std::thread::yield_now();
        }
        drop(release);
        stopping.join().unwrap().unwrap();
        assert_eq!(handled.recv(), Ok(Signal::USR2));
        assert!(handled.recv().is_err(), "raised twice, handled more often");
    }
}
