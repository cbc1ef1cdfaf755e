//! What a gate is made of, lent to it and given back.
//!
//! Passes point to it without counting references: that count would be the one place that all
//! threads write to. So it lives for ever, and is lent again when its gate is gone and drained. A
//! gate that is dropped with work inside keeps it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::labels::Labels;
use crate::sync::lock;

static FREE: Mutex<Vec<&'static Inner>> = Mutex::new(Vec::new());

pub(super) struct Inner {
    pub(super) counters: Counters,
    /// Woken when somebody leaves a gate that is not open, and when it opens or shuts.
    pub(super) left: Notify,
    labels: Mutex<Labels>,
    about: Mutex<About>,
}

struct About {
    name: Arc<str>,
    retry_after: Duration,
    closed: CancellationToken,
    cut: CancellationToken,
}

/// Held by every handle of one gate; gives the rest back when the last is gone.
pub(super) struct Lent(pub(super) &'static Inner);

pub(super) fn borrow(name: Arc<str>) -> &'static Inner {
    let about = About {
        name,
        retry_after: Duration::from_secs(1),
        closed: CancellationToken::new(),
        cut: CancellationToken::new(),
    };
    let free = lock(&FREE).pop();
    if let Some(inner) = free {
        *lock(&inner.about) = about;
        inner.counters.reopen();
        return inner;
    }
    Box::leak(Box::new(Inner {
        counters: Counters::new(),
        left: Notify::new(),
        labels: Mutex::default(),
        about: Mutex::new(about),
    }))
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Drained is final, so if it is, no pass and no handle points here any more.
        self.0.counters.close();
        if self.0.counters.is_drained() {
            lock(&FREE).push(self.0);
        }
    }
}

// === impl Inner ===

impl Inner {
    /// Wakes who waits for the gate to be empty.
    #[cold]
    pub(super) fn wake(&self) {
        self.left.notify_waiters();
    }

    pub(super) fn labels(&self) -> MutexGuard<'_, Labels> {
        lock(&self.labels)
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&lock(&self.about).name)
    }

    pub(super) fn retry_after(&self) -> Duration {
        lock(&self.about).retry_after
    }

    pub(super) fn set_retry_after(&self, retry_after: Duration) {
        lock(&self.about).retry_after = retry_after;
    }

    pub(super) fn closed_token(&self) -> CancellationToken {
        lock(&self.about).closed.clone()
    }

    pub(super) fn cut_token(&self) -> CancellationToken {
        lock(&self.about).cut.clone()
    }

    pub(super) fn tell_closed(&self) {
        self.closed_token().cancel();
    }

    pub(super) fn tell_cut(&self) {
        self.closed_token().cancel();
        self.cut_token().cancel();
    }
}
