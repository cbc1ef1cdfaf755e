//! A queue of jobs that never runs dry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu::{Outcome, Source};
use adieu_testkit::ledger::Fact;

use super::Error;
use super::store::Store;

/// Numbers go on when the source is made anew.
static NEXT: AtomicU64 = AtomicU64::new(0);

pub(super) struct Queue {
    store: Arc<Store>,
}

impl Queue {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Source for Queue {
    type Job = u64;
    type Error = Error;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, Error> {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let first = NEXT.fetch_add(3, Ordering::Relaxed);
        let batch: Vec<u64> = (first..first + 3).collect();
        for job in &batch {
            self.store.record(Fact::Accepted, "job", job);
        }
        Ok(Some(batch))
    }

    async fn done(&mut self, job: &u64, outcome: &Outcome) -> Result<(), Error> {
        if *outcome != Outcome::Finished {
            self.store.record(Fact::Returned, "job", job);
        }
        Ok(())
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), Error> {
        self.store.record(Fact::Returned, "job", job);
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), Error> {
        for job in jobs {
            self.store.record(Fact::Returned, "job", job);
        }
        Ok(())
    }
}
