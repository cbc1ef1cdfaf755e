//! The values that a layer derives from each request: its key, its criticality and its deadline.

use std::sync::Arc;

use adieu_core::Deadline;

use crate::bulkhead::Criticality;
use crate::policy::Caller;

type Choose<R, T> = Option<Arc<dyn Fn(&R) -> T + Send + Sync>>;

/// The functions that an application has set. `R` is the request, or its head.
pub(super) struct Options<R> {
    pub(super) key: Choose<R, Option<String>>,
    pub(super) criticality: Choose<R, Criticality>,
    pub(super) by: Choose<R, Option<Deadline>>,
}

/// The results of these functions for one request.
pub(super) struct Chosen {
    key: Option<String>,
    criticality: Criticality,
    by: Option<Deadline>,
}

// === impl Options ===

impl<R> Options<R> {
    pub(super) fn choose(&self, request: &R) -> Chosen {
        Chosen {
            key: self.key.as_ref().and_then(|key| key(request)),
            criticality: self.criticality.as_ref().map(|of| of(request)).unwrap_or_default(),
            by: self.by.as_ref().and_then(|by| by(request)),
        }
    }
}

impl<R> Default for Options<R> {
    fn default() -> Self {
        Self { key: None, criticality: None, by: None }
    }
}

impl<R> Clone for Options<R> {
    fn clone(&self) -> Self {
        let Self { key, criticality, by } = self;
        Self { key: key.clone(), criticality: criticality.clone(), by: by.clone() }
    }
}

// === impl Chosen ===

impl Chosen {
    pub(super) fn apply<'a, C>(&'a self, caller: Caller<'a, C>) -> Caller<'a, C> {
        let mut caller = caller.criticality(self.criticality);
        if let Some(key) = &self.key {
            caller = caller.key(key);
        }
        if let Some(by) = self.by {
            caller = caller.by(by);
        }
        caller
    }
}
