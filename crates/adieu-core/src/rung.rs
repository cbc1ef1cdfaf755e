//! The urgency of a shutdown.

use std::fmt;

use crate::signals::Signal;

/// The urgency of a shutdown, lowest first. It can rise, and never falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rung {
    /// Every phase runs in its order, within its time.
    Graceful,
    /// Tasks that only wait end now; tasks that do work continue. See
    /// [`TaskCx::hurried`](crate::TaskCx::hurried).
    EndWaiting,
    /// Running tasks are cancelled. Only the closing phases still run, within the reserve.
    HardStop,
    /// The process exits at once.
    Exit,
}

// === impl Rung ===

impl Rung {
    /// Returns the urgency after one more signal of this kind.
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
