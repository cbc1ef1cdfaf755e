//! A change of the table that a machine wants, and its purpose.

use std::time::Instant;

use crate::store::Commit;

/// The purpose of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
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

/// A commit that a machine wants to be applied.
#[derive(Clone, Debug)]
#[must_use = "a proposal changes nothing until it is committed"]
pub(crate) struct Proposal {
    pub(crate) what: What,
    pub(crate) commit: Commit,
}

/// The next instant at which a machine may decide otherwise, although nothing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake(Option<Instant>);

// === impl What ===

impl What {
    pub(crate) fn proposes(self, commit: Commit) -> Proposal {
        Proposal { what: self, commit }
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
