//! The log lines and counters of a policy: one line for each transition.

use std::sync::Arc;

use adieu_core::{Short, WeakShutdown, adapter};

use crate::breaker::Change;
use crate::counters::Counters;

/// Logs and counts for one key of a policy.
#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) policy: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) shutdown: WeakShutdown,
    pub(crate) counters: Arc<Counters>,
}

// === impl Journal ===

impl Journal {
    pub(crate) fn breaker_changed(&self, change: Change) {
        self.counters.count_change(change);
        let Self { policy, key, .. } = self.clone();
        self.log(move || {
            let key = key.as_deref();
            match change {
                Change::Opened { for_, reopenings } => {
                    let break_ = Short(for_);
                    tracing::warn!(%policy, key, %break_, reopenings, "breaker opened");
                }
                Change::FleetOpened { for_, reopenings } => {
                    let break_ = Short(for_);
                    tracing::warn!(%policy, key, %break_, reopenings, "breaker opened by the fleet");
                }
                // It was logged when this process opened it.
                Change::FleetFollowed => {}
                Change::HalfOpened => tracing::info!(%policy, key, "breaker half-open"),
                Change::Closed => tracing::info!(%policy, key, "breaker closed"),
            }
        });
    }

    pub(crate) fn log(&self, emit: impl FnOnce() + Send + 'static) {
        match self.shutdown.upgrade() {
            Some(shutdown) => adapter::log(&shutdown, emit),
            None => adapter::log_aside(tracing::Level::WARN, || emit),
        }
    }
}
