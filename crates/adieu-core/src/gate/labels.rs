//! The names of the work inside a gate, as far as it has names.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::time::Instant;

/// Labelled work that is inside a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// The label of the work.
    pub label: String,
    /// How long the work has been inside.
    pub age: Duration,
}

/// Lists the work inside a gate that has no label of its own; see
/// [`Gate::add_names`](super::Gate::add_names).
pub trait ListInFlight: Send + Sync {
    /// Lists the work that is inside now, in any order.
    fn in_flight(&self) -> Vec<InFlight>;
}

pub(super) type Label = Arc<dyn fmt::Display + Send + Sync>;

/// By number, which is by age: the first is the oldest.
#[derive(Default)]
pub(super) struct Labels {
    inside: BTreeMap<NonZeroU64, (Label, Instant)>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LabelId(pub(super) NonZeroU64);

// === impl InFlight ===

impl InFlight {
    /// Describes work that has been inside for this long.
    #[must_use]
    pub fn new(label: impl Into<String>, age: Duration) -> Self {
        Self { label: label.into(), age }
    }
}

// === impl Labels ===

impl Labels {
    pub(super) fn add(&mut self, label: Label, since: Instant) -> LabelId {
        self.last += 1;
        let id = NonZeroU64::new(self.last).unwrap_or(NonZeroU64::MAX);
        self.inside.insert(id, (label, since));
        LabelId(id)
    }

    pub(super) fn get(&self, LabelId(id): LabelId) -> Option<Label> {
        self.inside.get(&id).map(|(label, _)| Arc::clone(label))
    }

    pub(super) fn remove(&mut self, LabelId(id): LabelId) -> Option<Label> {
        self.inside.remove(&id).map(|(label, _)| label)
    }

    pub(super) fn oldest(&self, most: usize) -> Vec<(Label, Instant)> {
        self.inside.values().take(most).map(|(label, since)| (Arc::clone(label), *since)).collect()
    }
}
