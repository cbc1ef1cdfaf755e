//! The store of orders, behind a pool that can be closed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adieu::WeakShutdown;
use adieu_testkit::ledger::{Fact, Journal};

use super::Error;
use super::actors::Order;

/// A store behind a pool. The journal is both: an order that is in it as finished is stored.
pub(super) struct Store {
    journal: Journal,
    is_closed: AtomicBool,
    /// The shutdown; `None` if its work may be cut short. Then messages may also be refused after the last
    /// actor has ended, which the report does not contain.
    shutdown: Option<WeakShutdown>,
}

/// Closes the pool when it is dropped.
pub(super) struct CloseOnDrop(pub(super) Arc<Store>);

impl Store {
    pub(super) fn open(path: &Path, shutdown: Option<WeakShutdown>) -> Result<Self, Error> {
        Ok(Self { journal: Journal::open(path)?, is_closed: AtomicBool::new(false), shutdown })
    }

    /// Returns whether messages that are refused from now on are in the report.
    pub(super) fn has_begun(&self) -> bool {
        let shutdown = self.shutdown.as_ref().and_then(WeakShutdown::upgrade);
        shutdown.is_some_and(|shutdown| shutdown.token().is_cancelled())
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Stores an order, if the pool is still open.
    pub(super) async fn write(&self, order: Order) -> Result<(), Error> {
        self.write_as(Fact::Finished, order.kind, order.id).await
    }

    /// Records a fact in the store, if the pool is still open.
    pub(super) async fn write_as(
        &self,
        fact: Fact,
        kind: &str,
        id: impl fmt::Display,
    ) -> Result<(), Error> {
        // A round trip.
        tokio::task::yield_now().await;
        if self.is_closed.load(Ordering::Acquire) {
            return Err("the pool is closed".into());
        }
        self.record(fact, kind, id);
        Ok(())
    }

    pub(super) fn record(&self, fact: Fact, kind: &str, id: impl fmt::Display) {
        self.journal.record(fact, kind, id).expect("the journal can be written");
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
