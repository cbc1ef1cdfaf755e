//! Signals from the operating system.
//!
//! A thread of its own receives them, so that they are handled even if the async runtime is blocked.
//! No other module of this crate handles OS signals.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(not(unix), path = "signals/unsupported.rs")]
mod os;

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

pub(crate) use os::{Listener, end_now};

/// The highest number that a signal has on any system.
const HIGHEST: i32 = 64;

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
        "failed to install signals: {} are already installed; remove them first",
        crate::names::joined(installed, ", ")
    )]
    OthersInstalled {
        /// The installed signals.
        installed: Vec<Signal>,
    },
    /// No signal was named.
    #[error("failed to install signals: the list of signals is empty")]
    NoneNamed,
    /// In strict mode: the worst case of the plan exceeds the time that the platform allows.
    #[error("failed to install signals: {check}")]
    OverBudget {
        /// The figures, and what to change.
        check: Box<crate::budget::BudgetCheck>,
    },
    /// The operating system refused.
    #[error("failed to install signals")]
    Os {
        /// The error of the operating system.
        #[from]
        source: std::io::Error,
    },
}

// === impl Signal ===

impl Signal {
    /// SIGTERM: a supervisor requests the end of the process.
    pub const TERM: Signal = Signal(os::TERM);
    /// SIGINT: a person at a terminal requests the end of the process, with Ctrl-C.
    pub const INT: Signal = Signal(os::INT);
    /// SIGHUP: the terminal was closed.
    pub const HUP: Signal = Signal(os::HUP);
    /// SIGQUIT: nginx and others end gracefully on it.
    pub const QUIT: Signal = Signal(os::QUIT);
    /// SIGUSR1: its meaning is up to the application.
    pub const USR1: Signal = Signal(os::USR1);
    /// SIGUSR2: its meaning is up to the application.
    pub const USR2: Signal = Signal(os::USR2);

    /// The signals that are installed by default: SIGTERM and SIGINT.
    pub const DEFAULT: [Signal; 2] = [Self::TERM, Self::INT];

    /// If the same signal arrives twice within this time, it counts once.
    ///
    /// Shells signal a whole process group, and wrappers forward their signals, so a process can get
    /// one signal twice.
    pub const ECHO: Duration = Duration::from_millis(20);

    /// Returns the signal with this number. Installing it checks whether it can be caught.
    #[must_use]
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Returns the number of the signal.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns the name of the signal, such as `SIGTERM`, or `signal-40` for a signal without a name,
    /// such as a realtime signal.
    #[must_use]
    pub fn name(self) -> &'static str {
        static NUMBERED: LazyLock<Vec<String>> =
            LazyLock::new(|| (0..=HIGHEST).map(|number| format!("signal-{number}")).collect());
        let numbered = || usize::try_from(self.0).ok().and_then(|number| NUMBERED.get(number));
        os::name(self.0).or_else(|| numbered().map(String::as_str)).unwrap_or("signal")
    }

    /// Returns the signal with this name. Upper and lower case are equal.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        (1..=HIGHEST).map(Self).find(|signal| signal.name().eq_ignore_ascii_case(name))
    }

    /// Returns the exit code of a process that this signal has forced to exit: 128 plus its number.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        u8::try_from(self.0.saturating_add(128)).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
