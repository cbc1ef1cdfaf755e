//! A store in this process: for tests, and for several policies of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::board::Board;
use super::{Force, Probe, Probed, Reply, Report, Settled, Store, Synced};
use crate::breaker::Standing;
use crate::rate::{Gcra, Shared, Taken};
use crate::striped::lock;
use crate::time::{Instant, nanos_since, now};

/// Shares policies within this process: all clones are one store. For tests.
#[derive(Clone, Debug)]
pub struct Memory {
    origin: Instant,
    shared: Arc<Mutex<Contents>>,
}

/// The whole state of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    limits: HashMap<String, Shared>,
    /// By service.
    boards: HashMap<String, Board>,
}

/// So that the first time is not zero, which is the generation of a breaker that was never open.
const START: u64 = 1_000_000;

// === impl Memory ===

impl Memory {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: now(), shared: Arc::default() }
    }

    fn with_board<T>(&self, service: &str, act: impl FnOnce(&mut Board, u64) -> T) -> T {
        let micros = START + nanos_since(self.origin, now()) / 1_000;
        let mut contents = lock(&self.shared);
        act(contents.boards.entry(service.to_owned()).or_default(), micros)
    }

    /// Loses everything, as a store does that is restarted without its data.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        *lock(&self.shared) = Contents::default();
    }

    #[cfg(test)]
    pub(crate) fn save(&self) -> Contents {
        lock(&self.shared).clone()
    }

    /// Returns to an older state, as a store does that fails over, or restarts from a file.
    #[cfg(test)]
    pub(crate) fn restore(&self, contents: Contents) {
        *lock(&self.shared) = contents;
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn take<'a>(&'a self, key: &'a str, limit: Gcra, wanted: u32) -> Reply<'a, Taken> {
        Box::pin(async move {
            let now = nanos_since(self.origin, now());
            let limits = &mut lock(&self.shared).limits;
            let taken = limit.take_up_to(limits.get(key).copied(), now, wanted);
            match taken.state {
                Some(state) => limits.insert(key.to_owned(), state),
                None => limits.remove(key),
            };
            Ok(taken)
        })
    }

    fn sync<'a>(&'a self, service: &'a str, report: &'a Report) -> Reply<'a, Synced> {
        Box::pin(async { Ok(self.with_board(service, |board, now| board.sync(now, report))) })
    }

    fn probe<'a>(&'a self, service: &'a str, probe: &'a Probe) -> Reply<'a, Probed> {
        Box::pin(async { Ok(self.with_board(service, |board, now| board.probe(now, probe))) })
    }

    fn settle<'a>(&'a self, service: &'a str, settled: &'a Settled) -> Reply<'a, Option<Standing>> {
        Box::pin(async { Ok(self.with_board(service, |board, now| board.settle(now, settled))) })
    }

    fn force<'a>(&'a self, service: &'a str, force: &'a Force) -> Reply<'a, ()> {
        Box::pin(async {
            self.with_board(service, |board, now| board.force(now, force));
            Ok(())
        })
    }

    fn reconnect(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
