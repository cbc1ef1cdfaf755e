//! The facts from which readiness follows: start-up, promises and checks.

use std::sync::Arc;

use super::Shutdown;
use super::checks::{CheckHandle, Promise};
use super::shared::Shared;
use crate::journal::Line;
use crate::readiness::{Check, CheckState, Readiness};
use crate::shield::shielded;
use crate::status::Stage;

// === impl Shutdown ===

impl Shutdown {
    /// Returns whether work should be sent to this process.
    ///
    /// The process is ready when [`Shutdown::mark_started`] has been called, every
    /// [`Shutdown::add_promise`] has been kept, no [`Shutdown::add_check`] fails, and it is not cordoned.
    /// Once the shutdown has begun, it is never ready again.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.shared().refresh_checks();
        self.shared().progress.readiness()
    }

    /// Marks the end of start-up.
    pub fn mark_started(&self) {
        self.shared().progress.change_facts(|facts| facts.started = true);
    }

    /// Returns whether start-up has ended: [`Shutdown::mark_started`] has been called.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.shared().progress.read_facts(|facts| facts.started)
    }

    /// Adds a condition that must be met once before the process is ready.
    pub fn add_promise(&self, name: impl Into<Arc<str>>) -> Promise {
        let (shared, id) = (Arc::downgrade(self.shared()), self.shared().expect(name.into()));
        Promise { shared, id, kept: false }
    }

    /// Adds a check that can fail and recover for as long as the process lives. The process is not ready
    /// before the check first succeeds, nor while it fails. A check whose handle is dropped fails, until
    /// another check of the same name is added.
    ///
    /// ```
    /// # let shutdown = adieu_core::Shutdown::new();
    /// let database = shutdown.add_check("database");
    /// database.mark_ready();
    /// database.mark_failed("connection refused"); // when a ping fails
    /// database.mark_ready(); // when one succeeds again
    /// ```
    pub fn add_check(&self, name: impl Into<Arc<str>>) -> CheckHandle {
        let (shared, id) = (Arc::downgrade(self.shared()), self.shared().expect(name.into()));
        CheckHandle { shared, id }
    }

    /// Returns the promises and checks, in the order in which they were added.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        self.shared().refresh_checks();
        self.shared().progress.read_facts(|facts| facts.checks().cloned().collect())
    }

    /// Waits until `wanted` returns true for the readiness, and returns the readiness.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn until_readiness(&self, wanted: impl Fn(Readiness) -> bool) -> Readiness {
        self.shared().progress.until_readiness(wanted).await
    }
}

// === impl Shared ===

impl Shared {
    fn expect(&self, name: Arc<str>) -> u64 {
        self.progress.change_facts(|facts| facts.expect(name)).unwrap_or_default()
    }

    pub(crate) fn refresh_before_reading(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshes.lock().push(Arc::new(refresh));
    }

    /// Brings the checks that depend on the time up to date. Without the lock, because it logs.
    fn refresh_checks(&self) {
        let all = self.refreshes.lock().clone();
        for refresh in all {
            // A panic has been logged by the hook, and leaves the check as it is.
            drop(shielded(|| refresh()));
        }
    }

    /// Stores the state of a promise or check. While the process is up, a failure and a recovery are
    /// logged.
    pub(super) fn settle(&self, id: u64, state: CheckState, detail: Option<Arc<str>>) {
        let before = self.progress.change_facts(|facts| facts.settle(id, state, detail)).flatten();
        let is_failed = |state| state == CheckState::Failed;
        let changed = before.is_some_and(|before| is_failed(before) != is_failed(state));
        if changed && self.progress.stage() == Stage::Up {
            self.log_check(id);
        }
    }

    fn log_check(&self, id: u64) {
        if let Some(check) = self.progress.read_facts(|facts| facts.check(id).cloned()) {
            self.journal().note(Line::CheckChanged { check });
        }
    }

    /// Marks a promise or check whose handle was dropped as failed, until another one of that name is
    /// added.
    pub(super) fn abandon(&self, id: u64, detail: Option<Arc<str>>) {
        self.settle(id, CheckState::Failed, detail);
        self.progress.change_facts(|facts| facts.abandon(id));
    }
}
