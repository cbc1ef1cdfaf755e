//! A store in this process, for tests.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{Store, StoreError};
use crate::rate::{Gcra, Shared, Taken};
use crate::striped::lock;
use crate::time::{Instant, nanos_since, now};

/// Shares with the other policies of this process that use it.
pub(crate) struct Memory {
    origin: Instant,
    limits: Mutex<HashMap<String, Shared>>,
}

// === impl Memory ===

impl Memory {
    pub(crate) fn new() -> Self {
        Self { origin: now(), limits: Mutex::default() }
    }
}

impl Store for Memory {
    async fn take(&self, key: &str, limit: &Gcra, wanted: u32) -> Result<Taken, StoreError> {
        let now = nanos_since(self.origin, now());
        let mut limits = lock(&self.limits);
        let taken = limit.take_up_to(limits.get(key).copied(), now, wanted);
        match taken.state {
            Some(state) => limits.insert(key.to_owned(), state),
            None => limits.remove(key),
        };
        Ok(taken)
    }
}
