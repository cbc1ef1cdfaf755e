//! The connection between the handles and the driver of a shutdown.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::locks;
use super::progress_counts::ProgressCounts;
use crate::rung::Rung;
use crate::sync::OrderedMutex;
use crate::time::Instant;

pub(super) struct Engine {
    requests: OrderedMutex<Requests>,
    /// Wakes the driver: there are requests or ended tasks, or the shutdown is over.
    pub(super) nudge: Arc<Notify>,
    /// The numbers of phases that have begun and tasks that have ended, for a supervisor.
    pub(super) counts: watch::Sender<ProgressCounts>,
    /// The latest driver, while it runs on a runtime.
    driver: OrderedMutex<Option<Weak<dyn Movable>>>,
}

/// A running driver that can move to another runtime.
pub(super) trait Movable: Send + Sync {
    fn move_to(self: Arc<Self>, runtime: &Handle);
}

/// The requests to a running shutdown. Each value only ever rises, or comes nearer, so no request is lost
/// however many there are and however late the driver applies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) rung: Rung,
    pub(super) deadline: Option<Instant>,
    /// How often phases have been given more tasks, or more time, since the shutdown began.
    pub(super) grown: u64,
}

// === impl Engine ===

impl Engine {
    pub(super) fn new() -> Self {
        Self {
            requests: OrderedMutex::new(locks::REQUESTS, Requests::default()),
            nudge: Arc::default(),
            counts: watch::Sender::new(ProgressCounts::default()),
            driver: OrderedMutex::new(locks::LATEST_DRIVER, None),
        }
    }

    /// Changes the requests, and wakes the driver.
    pub(super) fn request(&self, change: impl FnOnce(&mut Requests)) {
        change(&mut self.requests.lock());
        self.nudge.notify_one();
    }

    pub(super) fn requests(&self) -> Requests {
        *self.requests.lock()
    }

    pub(super) fn set_driver(&self, driver: Weak<dyn Movable>) {
        *self.driver.lock() = Some(driver);
    }

    pub(super) fn driver(&self) -> Option<Arc<dyn Movable>> {
        self.driver.lock().as_ref()?.upgrade()
    }
}

// === impl Requests ===

impl Requests {
    /// Requests an earlier deadline. A deadline that is sooner already stays.
    pub(super) fn shorten_to(&mut self, deadline: Instant) {
        self.deadline = Some(self.deadline.map_or(deadline, |known| known.min(deadline)));
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { rung: Rung::Graceful, deadline: None, grown: 0 }
    }
}
