//! Restores the default action of signals that were removed.
//!
//! signal-hook's handler stays installed for the life of the process, and a handler without actions
//! ignores the signal. So a thread continues to receive signals that were removed, and carries out
//! their default action, unless other code in this process listens to the signal.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;

use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::foreign_listeners::{Additions, Registrations, is_caught};
use super::{Signal, end_now};
use crate::sync::lock;

/// Signals whose default action does not end process 1.
const HARMLESS: [i32; 7] = [SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH];

#[derive(Default)]
struct RemovedSignals {
    registrations: Registrations,
    signals: HashMap<i32, SignalUse>,
    thread: Option<Handle>,
}

/// A signal that this library has installed at least once.
struct SignalUse {
    before: PreviousDisposition,
    /// The number of this library's listeners that have the signal installed.
    installed: usize,
    /// Whether the thread receives the signal.
    is_watched: bool,
}

/// The disposition of a signal before this library first installed it.
#[derive(Clone, Copy)]
enum PreviousDisposition {
    /// The application had a handler or ignored the signal. Its handler still receives the signal.
    HandledOrIgnored,
    /// The default action. The value counts the registrations that other code had added to handlers
    /// by then.
    Default(Additions),
}

static REMOVED_SIGNALS: Mutex<Option<RemovedSignals>> = Mutex::new(None);

/// Registers a listener for these signals, and stores their previous dispositions.
pub(super) fn install<T>(
    signals: &[Signal],
    register: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let numbers: Vec<i32> = signals.iter().map(|signal| signal.0).collect();
    let mut guard = lock(&REMOVED_SIGNALS);
    let RemovedSignals { registrations, signals, .. } = guard.get_or_insert_default();
    let new = numbers.iter().copied().filter(|signal| !signals.contains_key(signal));
    let new: Vec<(i32, bool)> = new.map(|signal| (signal, is_caught(signal))).collect();
    let registered = registrations.count(&numbers, register)?;
    for (signal, was_caught) in new {
        let before = match was_caught {
            true => PreviousDisposition::HandledOrIgnored,
            false => PreviousDisposition::Default(registrations.additions(signal)?),
        };
        signals.insert(signal, SignalUse { before, installed: 0, is_watched: false });
    }
    for signal in &numbers {
        if let Some(known) = signals.get_mut(signal) {
            known.installed += 1;
        }
    }
    Ok(registered)
}

/// Restores the previous dispositions. Call it before the listener stops, so that no signal is lost
/// in between.
pub(super) fn restore(signals: &[Signal]) -> io::Result<()> {
    let mut guard = lock(&REMOVED_SIGNALS);
    let RemovedSignals { registrations, signals: uses, thread } = guard.get_or_insert_default();
    for signal in signals {
        let Some(known) = uses.get_mut(&signal.0) else { continue };
        known.installed = known.installed.saturating_sub(1);
        if matches!(known.before, PreviousDisposition::HandledOrIgnored) {
            continue;
        }
        if known.is_watched {
            // A registration waits for running handlers, so the signals that they have received count
            // as received before the removal.
            let _: Additions = registrations.additions(signal.0)?;
            continue;
        }
        let handle = match thread {
            Some(handle) => handle,
            None => thread.insert(start_thread()?),
        };
        registrations.count(&[signal.0], || handle.add_signal(signal.0))?;
        known.is_watched = true;
    }
    Ok(())
}

/// Starts the thread. It lives as long as the process, because a signal can arrive at any time.
fn start_thread() -> io::Result<Handle> {
    let mut signals = Signals::new([0_i32; 0])?;
    let handle = signals.handle();
    std::thread::Builder::new().name("adieu removed signals".into()).spawn(move || {
        for signal in signals.forever() {
            receive(signal);
        }
    })?;
    Ok(handle)
}

/// Handles a signal that this library no longer listens to.
pub(super) fn receive(signal: i32) {
    if has_default_action(signal) {
        do_default_action(signal);
    }
}

/// Returns whether no code in this process listens to the signal.
fn has_default_action(signal: i32) -> bool {
    let mut guard = lock(&REMOVED_SIGNALS);
    let RemovedSignals { registrations, signals, .. } = guard.get_or_insert_default();
    let Some(SignalUse { before: PreviousDisposition::Default(before), installed: 0, .. }) =
        signals.get(&signal)
    else {
        return false;
    };
    registrations.additions(signal).is_ok_and(|now| now <= *before)
}

fn do_default_action(signal: i32) {
    let is_first_process = std::process::id() == 1;
    if is_first_process && HARMLESS.contains(&signal) {
        return;
    }
    // The kernel protects process 1 from default actions, so there the process must exit itself.
    // The same holds for signals that signal-hook does not support.
    if is_first_process || signal_hook::low_level::emulate_default_handler(signal).is_err() {
        end_now(Signal(signal).exit_code());
    }
}
