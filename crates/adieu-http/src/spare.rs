//! A descriptor that is kept in reserve, so that a process that has used up all others can still
//! accept a connection: to refuse it, or to tell an operator what is the matter.

use std::fs::File;
use std::io;

/// A descriptor in reserve.
#[derive(Debug)]
pub(crate) struct Spare(Option<File>);

impl Spare {
    pub(crate) fn new() -> Self {
        let mut spare = Self(None);
        spare.refill();
        spare
    }

    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Frees the descriptor for somebody else. False if there is none.
    pub(crate) fn release(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes a descriptor in reserve again. False if there is none.
    pub(crate) fn refill(&mut self) -> bool {
        if self.0.is_none() && cfg!(unix) {
            self.0 = File::open("/dev/null").ok();
        }
        self.0.is_some()
    }
}

/// Whether this process, or the machine, has used up all descriptors.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
