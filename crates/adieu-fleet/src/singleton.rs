//! Work that one replica does while the others wait for it or skip it.

use adieu_core::Deadline;

use crate::journal;
use crate::lease::Lease;
use crate::lock::{AcquireError, Lock};
use crate::lock_backend::{BoxError, Holder, Marker};
use crate::turn::{TurnError, Waiting};
use crate::work::Work;

/// How replicas behave while another replica runs the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherReplicas {
    /// They wait until the work is done; if it fails, one of them takes over. So no replica is ready
    /// before, for example, an index exists.
    #[default]
    Wait,
    /// They continue, and do not learn how the work ends.
    Skip,
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<T> {
    /// This replica ran the work.
    Ran(T),
    /// Another replica completed the work while this one waited.
    Waited,
    /// Another replica is running the work.
    Skipped(Holder),
}

// === impl Lock ===

impl Lock {
    /// Runs work that only one replica may run at a time, such as making sure that an index exists.
    ///
    /// The first replica to acquire the lock runs `work` under its lease, and then releases it. The
    /// other replicas wait for the end of the work, or skip it. If the replica that runs it fails or
    /// dies, a waiting replica takes over. A replica that arrives after the end runs the work again,
    /// so the work must be repeatable; otherwise use [`Lock::once_per_fleet`].
    ///
    /// The key identifies the work. Two pieces of work that must not run at the same time can share a
    /// lock as steps of start-up: see [`Lock::singleton_step`].
    ///
    /// `until` limits the wait. It does not limit `work`.
    ///
    /// # Errors
    ///
    /// If `work` fails or its lease is lost; if there was no turn in time; or if the backend has no
    /// fences.
    ///
    /// # Panics
    ///
    /// If `work` panics, after the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The lock is then released in the background, and another
    /// replica takes over.
    pub async fn singleton<F, Fut, T, E>(
        &self,
        others: OtherReplicas,
        until: Deadline,
        work: F,
    ) -> Result<Turn<T>, TurnError>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<BoxError>,
    {
        self.singleton_of(Work::OfKey, others, until, work).await
    }

    /// Runs one of several pieces of work that share this lock; see [`Lock::singleton`].
    pub(crate) async fn singleton_of<F, Fut, T, E>(
        &self,
        which: Work,
        others: OtherReplicas,
        until: Deadline,
        work: F,
    ) -> Result<Turn<T>, TurnError>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<BoxError>,
    {
        self.check_fences()?;
        let (done, owner) = (which.done_marker(), which.owner(self.owner()));
        let mut waiting = Waiting::new(self, until);
        // A marker with a higher fence than this was written after this replica had arrived.
        let before = waiting.marker(&done).await?.map(|marker| marker.fence);
        let is_done = |marker: Option<Marker>| marker.map(|marker| marker.fence) > before;
        let mut attempt = waiting.turn(&owner).await?;
        let lease = loop {
            let error = match attempt {
                Ok(lease) => break lease,
                Err(AcquireError::Held { holder, .. })
                    if others == OtherReplicas::Skip && which.is_done_by(&holder) =>
                {
                    let owner = holder.owner.without_work();
                    return Ok(Turn::Skipped(Holder { owner, ..holder }));
                }
                Err(error) => error,
            };
            waiting.pause(error).await?;
            if is_done(waiting.marker(&done).await?) {
                return Ok(Turn::Waited);
            }
            attempt = waiting.turn_if_free(&owner).await?;
        };
        // Another replica may have completed the work since the last check.
        if is_done(waiting.marker(&done).await?) {
            self.release(lease).await;
            return Ok(Turn::Waited);
        }
        let work = work(lease.clone());
        let (ran, marked) = self.run(lease, work, (&done, "done")).await?;
        if let Err(error) = marked {
            journal::work_not_marked(self.key(), &error);
        }
        Ok(Turn::Ran(ran))
    }
}
