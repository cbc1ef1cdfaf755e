//! Why a change of a plan was rejected.

use crate::names::{PhaseNames, joined};
use crate::phase::Phase;

/// Why a change of a plan was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A phase needs a name.
    #[error("a phase has an empty name")]
    EmptyName,
    /// A phase with that name exists already.
    #[error("phase {phase} already exists: choose another name")]
    DuplicatePhase {
        /// The name that was given twice.
        phase: Phase,
    },
    /// A phase does not exist.
    #[error("{}", unknown(phase.as_ref(), name, known))]
    UnknownPhase {
        /// The phase that refers to it, if one does.
        phase: Option<Phase>,
        /// The unknown name.
        name: Phase,
        /// The known phases.
        known: PhaseNames,
    },
    /// Phases wait for each other.
    #[error("phases wait for each other: {}", joined(path, " -> "))]
    Cycle {
        /// Each phase waits for the next; the first is also the last.
        path: Vec<Phase>,
    },
    /// A timeout of zero would fail every task at once.
    #[error("phase {phase} has a timeout of zero: disable the phase instead")]
    ZeroTimeout {
        /// The phase in question.
        phase: Phase,
    },
    /// A timeout is one year at most.
    #[error("phase {phase} has a timeout longer than the maximum (one year)")]
    TimeoutTooLong {
        /// The phase in question.
        phase: Phase,
    },
    /// A configured phase has no connection to others, and is named almost like another.
    #[error(
        "unknown phase {phase}; did you mean {near}? A new phase needs after, before or depends-on"
    )]
    Misspelt {
        /// The phase that was configured.
        phase: Phase,
        /// The one that was probably meant.
        near: Phase,
    },
}

fn unknown(phase: Option<&Phase>, name: &Phase, known: &PhaseNames) -> String {
    match phase {
        Some(phase) => format!("phase {phase} refers to unknown phase {name}; {known}"),
        None => format!("unknown phase {name}; {known}"),
    }
}
