//! Signals from the operating system.
//!
//! They are received on a thread of their own, so that they are heard when the async runtime is
//! wedged. Nothing outside this module touches OS signals.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(not(unix), path = "signals/other.rs")]
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

    /// Its name, such as `SIGTERM`; of one that has none, such as a realtime signal, `signal-40`.
    #[must_use]
    pub fn name(self) -> &'static str {
        static NUMBERED: LazyLock<Vec<String>> =
            LazyLock::new(|| (0..=HIGHEST).map(|number| format!("signal-{number}")).collect());
        let numbered = || usize::try_from(self.0).ok().and_then(|number| NUMBERED.get(number));
        os::name(self.0).or_else(|| numbered().map(String::as_str)).unwrap_or("signal")
    }

    /// The signal of this name, in any case.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        (1..=HIGHEST).map(Self).find(|signal| signal.name().eq_ignore_ascii_case(name))
    }

    /// The exit code of a process that this signal forced to end: 128 and its number.
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
