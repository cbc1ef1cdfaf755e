//! Signals from the operating system.
//!
//! They are received on a thread of their own, so that they are heard when the async runtime is
//! wedged. Nothing outside this module touches OS signals.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(not(unix), path = "signals/other.rs")]
mod os;

use std::fmt;
use std::time::Duration;

pub(crate) use os::{Listener, end_now};

/// A signal, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

/// Why signals were not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// This signal cannot be caught.
    #[error("failed to install {signal}: it cannot be caught")]
    Uncatchable {
        /// The signal in question.
        signal: Signal,
    },
    /// Other signals are installed already.
    #[error(
        "failed to install signals: {} are installed already; remove them first",
        crate::names::joined(installed, ", ")
    )]
    OthersInstalled {
        /// Those that are.
        installed: Vec<Signal>,
    },
    /// No signal was named.
    #[error("failed to install signals: none was named")]
    NoneNamed,
    /// The plan does not fit into what the platform allows, and the mode is strict.
    #[error("failed to install signals: {check}")]
    OverBudget {
        /// The figures, and what to change.
        check: Box<crate::budget::BudgetCheck>,
    },
    /// The operating system refused.
    #[error("failed to install signals")]
    Os {
        /// What it said.
        #[from]
        source: std::io::Error,
    },
}

// === impl Signal ===

impl Signal {
    /// A supervisor asks the process to end.
    pub const TERM: Signal = Signal(os::TERM);
    /// A person at a terminal asks the process to end.
    pub const INT: Signal = Signal(os::INT);
    /// The terminal is gone.
    pub const HUP: Signal = Signal(os::HUP);
    /// End, as nginx and others take it.
    pub const QUIT: Signal = Signal(os::QUIT);
    /// For the application to define.
    pub const USR1: Signal = Signal(os::USR1);
    /// For the application to define.
    pub const USR2: Signal = Signal(os::USR2);

    /// Shells signal a whole process group, and wrappers forward what they get: the same signal
    /// within this time is the same signal.
    pub const ECHO: Duration = Duration::from_millis(20);

    /// The signal of this number. Whether it can be caught is checked when it is installed.
    #[must_use]
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The exit code of a process that this signal forced to end: 128 and its number.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        u8::try_from(self.0.saturating_add(128)).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match os::name(self.0) {
            Some(name) => f.pad(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
