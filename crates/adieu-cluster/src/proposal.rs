//! A change of the table that a machine proposes, and its purpose.

use std::time::Instant;

use crate::store::Commit;

/// The purpose of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    SetMode,
    Configure,
    Join,
    Announce,
    Leave,
    Remove,
    Lead,
    Up,
    Exiting,
    Place,
    RequestMove,
    HandOver,
    GiveBack,
    Take,
    Free,
    Dead,
    Forget,
    Beat,
}

/// A commit that a machine proposes.
#[derive(Clone, Debug)]
#[must_use = "a proposal changes nothing until it is committed"]
pub(crate) struct Proposal {
    pub(crate) what: Purpose,
    pub(crate) commit: Commit,
}

/// The next instant at which a machine may decide otherwise, although nothing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake(Option<Instant>);

// === impl What ===

impl Purpose {
    pub(crate) fn proposes(self, commit: Commit) -> Proposal {
        Proposal { what: self, commit }
    }

    /// Returns the name for metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SetMode => "set-mode",
            Self::Configure => "configure",
            Self::Join => "join",
            Self::Announce => "announce",
            Self::Leave => "leave",
            Self::Remove => "remove",
            Self::Lead => "lead",
            Self::Up => "up",
            Self::Exiting => "exiting",
            Self::Place => "place",
            Self::RequestMove => "request-move",
            Self::HandOver => "hand-over",
            Self::GiveBack => "give-back",
            Self::Take => "take",
            Self::Free => "free",
            Self::Dead => "dead",
            Self::Forget => "forget",
            Self::Beat => "beat",
        }
    }
}

// === impl Wake ===

impl Wake {
    pub(crate) fn at(&mut self, at: Instant) {
        self.0 = Some(self.0.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn get(self) -> Option<Instant> {
        self.0
    }
}
