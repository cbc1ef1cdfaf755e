//! What this node has counted, for metrics; and what its singletons do, for the status.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::proposal::Purpose;
use crate::store::Committed;

/// What the instance of a singleton on this node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InstanceState {
    /// It runs.
    Running,
    /// It has been signalled to stop.
    Stopping,
    /// It failed, and is started again after a pause.
    Failed,
    /// It has ended, and is not started again on this node.
    Ended,
}

/// The counters of one node.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    renewals_failed: AtomicU64,
    rest: Mutex<Rest>,
}

#[derive(Clone, Debug, Default)]
struct Rest {
    commits: BTreeMap<(Purpose, &'static str), u64>,
    started: BTreeMap<Arc<str>, u64>,
    failed: BTreeMap<Arc<str>, u64>,
    instances: BTreeMap<Arc<str>, InstanceState>,
    handoffs: BTreeMap<Arc<str>, Duration>,
}

// === impl Counters ===

impl Counters {
    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn renewal_failed(&self) {
        // Relaxed, here and below, because no other memory depends on this value.
        self.renewals_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a commit by its answer; `None` if it was not answered.
    pub(crate) fn committed(&self, what: Purpose, answer: Option<&Committed>) {
        let outcome = match answer {
            Some(Committed::Done(_)) => "done",
            Some(Committed::Conflict) => "conflict",
            None => "unanswered",
        };
        *self.rest().commits.entry((what, outcome)).or_default() += 1;
    }

    pub(crate) fn singleton_started(&self, name: &Arc<str>) {
        *self.rest().started.entry(Arc::clone(name)).or_default() += 1;
    }

    pub(crate) fn singleton_failed(&self, name: &Arc<str>) {
        *self.rest().failed.entry(Arc::clone(name)).or_default() += 1;
    }

    /// Stores how long the last hand-off of a singleton to this node took.
    pub(crate) fn handed_over(&self, name: Arc<str>, took: Duration) {
        self.rest().handoffs.insert(name, took);
    }

    pub(crate) fn handoffs(&self) -> BTreeMap<Arc<str>, Duration> {
        self.rest().handoffs.clone()
    }

    pub(crate) fn set_instances(&self, instances: BTreeMap<Arc<str>, InstanceState>) {
        self.rest().instances = instances;
    }

    pub(crate) fn instances(&self) -> BTreeMap<Arc<str>, InstanceState> {
        self.rest().instances.clone()
    }

    pub(crate) fn renewals_failed(&self) -> u64 {
        self.renewals_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn commits(&self) -> BTreeMap<(Purpose, &'static str), u64> {
        self.rest().commits.clone()
    }

    /// Returns how often each singleton was started on this node.
    pub(crate) fn started(&self) -> BTreeMap<Arc<str>, u64> {
        self.rest().started.clone()
    }

    /// Returns how often each singleton failed on this node.
    pub(crate) fn failed(&self) -> BTreeMap<Arc<str>, u64> {
        self.rest().failed.clone()
    }
}
