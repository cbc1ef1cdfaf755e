//! The warning that the worst case is longer than the platform allows. It is logged once, after
//! start-up.
//!
//! Each phase and task that is added may make the worst case longer. A warning for each of them would
//! show figures that no longer hold. So the warning is logged when nothing has been added for a while.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::budget::BudgetCheck;
use crate::config::Source;
use crate::journal::Line;
use crate::time::real_now;

/// How long the worst case must not have grown, if the program has marked the end of start-up.
const SETTLED: Duration = Duration::from_millis(500);
/// The same for programs that do not mark it.
const PROBABLY_SETTLED: Duration = Duration::from_secs(5);

/// How often a thread checks that. The thread runs only while a warning is due.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

// === impl Shared ===

impl Shared {
    /// Makes the warning due, if the worst case has become longer.
    pub(super) fn warn_of(self: &Arc<Self>, over: Option<BudgetCheck>) {
        let Some(check) = over.filter(|_| !self.config().strict) else { return };
        let mut core = self.core.lock();
        let warning = &mut core.allowance.warning;
        if check.needed() <= warning.needed {
            return;
        }
        warning.needed = check.needed();
        let has_thread = warning.due_since.replace(real_now()).is_some();
        drop(core);
        if has_thread {
            return;
        }
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("adieu budget".into());
        let spawned = thread.spawn(move || {
            while weak.upgrade().is_some_and(|shared| shared.is_warning_due()) {
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        if spawned.is_err() {
            self.warn_now();
        }
    }

    /// Logs the warning if nothing has been added for a while. Returns false when it has been logged.
    fn is_warning_due(&self) -> bool {
        let has_started = self.progress.read_facts(|facts| facts.started);
        let patience = if has_started { SETTLED } else { PROBABLY_SETTLED };
        let due_since = self.core.lock().allowance.warning.due_since;
        let Some(since) = due_since else { return false };
        if real_now().saturating_duration_since(since) >= patience {
            self.warn_now();
        }
        true
    }

    /// Logs the warning if it is due.
    pub(super) fn warn_now(&self) {
        let mut core = self.core.lock();
        if core.allowance.warning.due_since.take().is_none() {
            return;
        }
        let check = core.check_budget();
        let advice = match &core.allowance.source {
            Source::Assumed(platform) => platform.how_to_allow(check.enough()),
            Source::Known(how) => format!("kill-after is {how}"),
        };
        drop(core);
        if !check.fits() {
            self.journal().note(Line::OverBudget { check: format!("{check}; {advice}") });
        }
    }
}
