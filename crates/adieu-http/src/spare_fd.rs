//! A file descriptor in reserve, with which a process that has used up all others can still accept a
//! connection: to refuse it, or to answer an operator.

use std::fs::File;
use std::io;
use std::sync::{PoisonError, RwLock};
use std::task::Poll;

/// Write-locked while a reserve is exchanged for a connection. Servers accept under the read lock,
/// because an ordinary accept would take the descriptor that the exchange has just released.
static EXCHANGE: RwLock<()> = RwLock::new(());

/// A file descriptor in reserve.
#[derive(Debug)]
pub(crate) struct SpareFd(Option<File>);

impl SpareFd {
    pub(crate) fn new() -> Self {
        let mut spare = Self(None);
        spare.refill();
        spare
    }

    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Frees the descriptor. Returns false if there is none.
    pub(crate) fn release(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Releases the descriptor, and accepts with it. If there is nothing to accept, it is reserved
    /// again. Returns `None` if there is no reserve.
    pub(crate) fn exchange<T>(&mut self, accept: impl FnOnce() -> Poll<T>) -> Option<Poll<T>> {
        exclusively(|| {
            if !self.release() {
                return None;
            }
            let accepted = accept();
            if accepted.is_pending() {
                self.refill();
            }
            Some(accepted)
        })
    }

    /// Opens a descriptor again, unless there is one. Returns false if that fails.
    pub(crate) fn refill(&mut self) -> bool {
        if self.0.is_none() && cfg!(unix) {
            self.0 = File::open("/dev/null").ok();
        }
        self.0.is_some()
    }
}

/// Runs `accept`, which may release a reserve, while no server in this process accepts.
pub(crate) fn exclusively<T>(accept: impl FnOnce() -> T) -> T {
    let _guard = EXCHANGE.write().unwrap_or_else(PoisonError::into_inner);
    accept()
}

/// Runs `accept`, which releases no reserve, while none is being exchanged.
pub(crate) fn between_exchanges<T>(accept: impl FnOnce() -> T) -> T {
    let _guard = EXCHANGE.read().unwrap_or_else(PoisonError::into_inner);
    accept()
}

/// Returns whether this process, or the machine, has used up its descriptors.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
