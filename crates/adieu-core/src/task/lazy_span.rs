//! A span that several tasks share: it is opened by the first of them.

use std::sync::{Arc, Mutex, OnceLock};

use tracing::Span;

use crate::shield::shielded;
use crate::sync::lock;

/// A span that is opened when a task first needs it.
#[derive(Debug, Default)]
pub(crate) struct LazySpan(OnceLock<Mutex<Option<Arc<Span>>>>);

// === impl LazySpan ===

impl LazySpan {
    pub(super) fn get(&self, open: impl FnOnce() -> Span) -> Option<Arc<Span>> {
        let cell = self.0.get_or_init(|| Mutex::new(shielded(open).ok().map(Arc::new)));
        lock(cell).clone()
    }

    /// Removes and returns the span. The caller drops it on a thread that a subscriber may block.
    pub(crate) fn close(&self) -> Option<Arc<Span>> {
        lock(self.0.get()?).take()
    }
}
