//! Compares the work that was accepted with the work that was finished, when resources begin to close
//! and when the run ends.
//!
//! Phases can be disabled, skipped or cut short, and with them the tasks that drain and report. So
//! the end does not rely on them: the engine queries every source for work that no task has
//! reported. A shutdown is clean only if none has any.

use std::fmt;
use std::sync::Arc;

use crate::shield::shielded;
use crate::task::Detail;

/// A source of accepted work that no gate counts; see [`account_for`](crate::adapter::account_for).
#[derive(Clone)]
pub struct WorkSource {
    name: Arc<str>,
    lost: Account,
    remaining: Account,
    using_resources: Account,
}

/// Returns work that no task of the shutdown has reported.
type Account = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The text of a report if an account panics.
const UNKNOWN: &str = "unfinished work is not known, because its account panicked";

/// The sources of work that are not gates, and the work of all sources that was not finished.
#[derive(Default)]
pub(super) struct Accounts {
    sources: Vec<WorkSource>,
    /// Stored as soon as it is taken from its source: the driver and the watchdog may both make a report.
    found: Vec<Unfinished>,
}

/// Accepted work of one source that was not finished.
#[derive(Clone)]
pub(super) struct Unfinished {
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    /// Labels are code of the application, so the text is made on another thread.
    pub(super) what: Arc<Detail>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Work that has failed, or may fail although it continues. It stays in the report.
    Lost,
    /// Work in progress. A later finding replaces it, and a run that is resumed may finish it.
    Remaining,
}

// === impl WorkSource ===

impl WorkSource {
    /// Creates a source with this name, which appears in log and report. It has no work yet.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let nothing: Account = Arc::new(|| None);
        Self {
            name: name.into(),
            lost: Arc::clone(&nothing),
            remaining: Arc::clone(&nothing),
            using_resources: nothing,
        }
    }

    /// Sets the function that takes the accepted work which has ended without being finished. What it
    /// has returned once, it does not return again.
    #[must_use]
    pub fn lost(mut self, lost: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.lost = Arc::new(lost);
        self
    }

    /// Sets the function that returns the accepted work which is not finished and may still be.
    #[must_use]
    pub fn remaining(
        mut self,
        remaining: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.remaining = Arc::new(remaining);
        self
    }

    /// Sets the function that returns the work in progress which may use resources of the application.
    ///
    /// It is called once, before the first task of a phase after
    /// [`Phase::ACTOR_SYSTEM_TERMINATE`](crate::Phase::ACTOR_SYSTEM_TERMINATE) starts, because from then
    /// on resources are closed. The report contains this work even if it ends later: it may have failed
    /// for lack of a resource.
    #[must_use]
    pub fn using_resources(
        mut self,
        using_resources: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.using_resources = Arc::new(using_resources);
        self
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn take_lost(&self) -> Option<String> {
        answer(&self.lost)
    }

    pub(super) fn read_remaining(&self) -> Option<String> {
        answer(&self.remaining)
    }

    pub(super) fn read_using_resources(&self) -> Option<String> {
        answer(&self.using_resources)
    }
}

fn answer(account: &Account) -> Option<String> {
    shielded(|| account()).unwrap_or_else(|_| Some(UNKNOWN.to_owned()))
}

impl fmt::Debug for WorkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkSource").field("name", &self.name).finish_non_exhaustive()
    }
}

// === impl Accounts ===

impl Accounts {
    pub(super) fn add(&mut self, source: WorkSource) {
        self.sources.push(source);
    }

    pub(super) fn sources(&self) -> Vec<WorkSource> {
        self.sources.clone()
    }

    /// Stores work that was found.
    pub(super) fn store(&mut self, found: &Unfinished) {
        if found.kind == Kind::Remaining {
            self.found.retain(|old| old.kind != Kind::Remaining || old.name != found.name);
        }
        self.found.push(found.clone());
    }

    /// Returns all work that was found since the run began.
    pub(super) fn found(&self) -> Vec<Unfinished> {
        self.found.clone()
    }

    /// Takes the work that a run which is resumed may finish, to be dropped without the lock.
    pub(super) fn take_remaining(&mut self) -> Vec<Unfinished> {
        self.found.extract_if(.., |found| found.kind == Kind::Remaining).collect()
    }

    /// Takes the sources, to be dropped without the lock.
    pub(super) fn take(&mut self) -> Vec<WorkSource> {
        std::mem::take(&mut self.sources)
    }
}
