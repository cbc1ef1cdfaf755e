//! How urgent a shutdown is.

use std::fmt;

use crate::signals::Signal;

/// How urgent it is. The order is the urgency: it may rise, never fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rung {
    /// Everything in its order and its time.
    Graceful,
    /// Waits that are mere waits end now; work goes on.
    EndWaiting,
    /// What runs is cancelled; only the closing phases still run, within the reserve.
    HardStop,
    /// The process ends now.
    Exit,
}

// === impl Rung ===

impl Rung {
    /// Where one more of this signal leads.
    #[must_use]
    pub fn next(self, signal: Signal) -> Rung {
        match self {
            Rung::Graceful if signal == Signal::INT => Rung::HardStop,
            Rung::Graceful => Rung::EndWaiting,
            Rung::EndWaiting => Rung::HardStop,
            Rung::HardStop | Rung::Exit => Rung::Exit,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::Graceful => "shut down gracefully",
            Rung::EndWaiting => "end waiting early",
            Rung::HardStop => "cancel running tasks and run only the closing phases",
            Rung::Exit => "exit at once",
        })
    }
}
