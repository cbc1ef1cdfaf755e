//! The warning that the worst case is longer than the platform allows: one, when start-up is over.
//!
//! Each phase and task that is added may make the worst case longer. A line for each of them would
//! show figures that no longer hold. So the warning waits until nothing more is added.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::budget::BudgetCheck;
use crate::config::Source;
use crate::journal::Line;
use crate::sync::lock;
use crate::time::{Instant, real_now};

/// How long the worst case must not have grown: after [`Shutdown::started`](super::Shutdown::started),
/// and without it, because programs need not call it.
const SETTLED: Duration = Duration::from_millis(500);
const PROBABLY_SETTLED: Duration = Duration::from_secs(5);

/// How often a thread checks that. The thread runs only while a warning is due.
const LOOK: Duration = Duration::from_millis(100);

/// What has been warned of.
#[derive(Default)]
pub(super) struct Warning {
    /// How long the worst case was, with the reserve, when it was last logged or became due.
    needed: Duration,
    /// When it last grew, if it has grown since it was logged.
    due_since: Option<Instant>,
}

// === impl Shared ===

impl Shared {
    /// Notes that the worst case is too long.
    pub(super) fn warn_of(self: &Arc<Self>, over: Option<BudgetCheck>) {
        let Some(check) = over.filter(|_| !self.config.strict) else { return };
        let mut core = lock(&self.core);
        let warning = &mut core.warning;
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
                std::thread::sleep(LOOK);
            }
        });
        if spawned.is_err() {
            self.warn_now();
        }
    }

    /// Logs the warning if nothing has been added for a while; false when it has been logged.
    fn is_warning_due(&self) -> bool {
        let has_started = self.look_at_facts(|facts| facts.started);
        let patience = if has_started { SETTLED } else { PROBABLY_SETTLED };
        let due_since = lock(&self.core).warning.due_since;
        let Some(since) = due_since else { return false };
        if real_now().saturating_duration_since(since) >= patience {
            self.warn_now();
        }
        true
    }

    /// Logs the warning if it is due.
    pub(super) fn warn_now(&self) {
        let mut core = lock(&self.core);
        if core.warning.due_since.take().is_none() {
            return;
        }
        let check = core.check_budget();
        let advice = match &core.source {
            Source::Assumed(platform) => platform.how_to_allow(check.enough()),
            Source::Known(how) => format!("kill-after is {how}"),
        };
        drop(core);
        if !check.fits() {
            self.journal.note(Line::OverBudget { check: format!("{check}; {advice}") });
        }
    }
}
