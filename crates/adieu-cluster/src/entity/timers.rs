//! Timers of the shards of this node: at which instant each of them has to be checked.

use std::collections::BTreeMap;
use std::sync::{Mutex, Weak};

use adieu_core::adapter::lock;
use tokio::sync::Notify;

use crate::time::Instant;

/// The shards that wait for an instant.
#[derive(Default)]
pub(crate) struct Timers {
    inner: Mutex<Inner>,
    /// Notified when the first instant has become earlier.
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    due: BTreeMap<(Instant, u64), Weak<dyn Timed>>,
    sequence: u64,
}

/// Has something to do at an instant.
pub(super) trait Timed: Send + Sync {
    fn advance(&self, now: Instant);
}

// === impl Timers ===

impl Timers {
    /// Calls `timed` at or after that instant.
    pub(super) fn add(&self, at: Instant, timed: Weak<dyn Timed>) {
        let mut inner = lock(&self.inner);
        inner.sequence += 1;
        let key = (at, inner.sequence);
        inner.due.insert(key, timed);
        if inner.due.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.changed.notify_one();
        }
    }

    /// Waits until the first instant is earlier than it was.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Calls the timers that are due, and returns when the next is due.
    pub(crate) fn advance(&self, now: Instant) -> Option<Instant> {
        loop {
            let timed = {
                let mut inner = lock(&self.inner);
                let first = inner.due.first_entry()?;
                if first.key().0 > now {
                    return Some(first.key().0);
                }
                first.remove()
            };
            if let Some(timed) = timed.upgrade() {
                timed.advance(now);
            }
        }
    }
}
