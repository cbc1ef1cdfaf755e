//! Work that one replica does while the others wait for it, or do not.

use std::panic::resume_unwind;

use adieu_core::Deadline;

use crate::lease::Lease;
use crate::lock::{AcquireError, Lock};
use crate::locks::{BoxError, Holder, Marker};
use crate::turn::{End, TurnError, Waiting};
use crate::work::Work;

/// What replicas do while another one is at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// They wait until it is done; if it fails, one of them does it. So nobody is ready before the
    /// index exists.
    #[default]
    Wait,
    /// They go on, and do not know how it ends.
    Skip,
}

/// What became of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<T> {
    /// We have done it.
    Ran(T),
    /// Somebody else has done it while we waited.
    Waited,
    /// Somebody else is doing it.
    Skipped(Holder),
}

// === impl Lock ===

impl Lock {
    /// Does something that only one replica may do at a time, such as making sure that an index
    /// exists.
    ///
    /// The first to get the lock runs `work` under its lease and releases it. The others wait until
    /// that is done, or skip it. If who runs it fails or dies, one of those who wait takes over. A
    /// replica that comes when all is over runs it again, so it must be something that can be
    /// repeated; for what must not be, see [`Lock::once_per_fleet`].
    ///
    /// The key says what the work is. Two pieces of work that must not run at the same time can
    /// share a lock as steps of start-up: see [`Lock::singleton_step`].
    ///
    /// `until` is when waiting ends. It does not limit `work`.
    ///
    /// # Errors
    ///
    /// If `work` fails or its lease is lost; if there was no turn in time; or if the backend has no
    /// fences.
    ///
    /// # Panics
    ///
    /// As `work` does, after the lock was released.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `work`; then the lock is released in the background, and somebody else
    /// takes over.
    pub async fn singleton<F, Fut, T, E>(
        &self,
        others: Others,
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

    /// As [`Lock::singleton`], for one of several pieces of work that share this lock.
    pub(crate) async fn singleton_of<F, Fut, T, E>(
        &self,
        which: Work,
        others: Others,
        until: Deadline,
        work: F,
    ) -> Result<Turn<T>, TurnError>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<BoxError>,
    {
        self.must_have_fences()?;
        let (done, owner) = (which.done_marker(), which.owner(self.owner()));
        let mut waiting = Waiting::new(self, until);
        // A marker with a higher fence than this was written after this replica had arrived.
        let before = waiting.marker(&done).await?.map(|marker| marker.fence);
        let is_done = |marker: Option<Marker>| marker.map(|marker| marker.fence) > before;
        let mut attempt = waiting.turn(&owner).await?;
        let lease = loop {
            let met = match attempt {
                Ok(lease) => break lease,
                Err(AcquireError::Held { holder, .. })
                    if others == Others::Skip && which.is_done_by(&holder) =>
                {
                    let owner = holder.owner.without_work();
                    return Ok(Turn::Skipped(Holder { owner, ..holder }));
                }
                Err(error) => error,
            };
            waiting.pause(met).await?;
            if is_done(waiting.marker(&done).await?) {
                return Ok(Turn::Waited);
            }
            attempt = waiting.turn_if_free(&owner).await?;
        };
        // Somebody may have been faster, and done, since we last looked.
        if is_done(waiting.marker(&done).await?) {
            self.give_back(lease).await;
            return Ok(Turn::Waited);
        }
        let end = match self.run(&lease, work(lease.clone())).await {
            Ok(end) => end,
            Err(panic) => {
                self.give_back(lease).await;
                resume_unwind(panic);
            }
        };
        if let End::Done(_) = &end
            && let Err(error) = self.mark(&lease, &done, "done").await
        {
            adieu_core::adapter::log_aside(tracing::Level::WARN, || {
                let (key, error) = (self.key().clone(), adieu_core::adapter::error_text(&error));
                move || tracing::warn!(%key, error, "done, but not marked: other replicas repeat it")
            });
        }
        self.give_back(lease).await;
        let key = self.key().clone();
        match end {
            End::Done(done) => Ok(Turn::Ran(done)),
            End::Failed(source) => Err(TurnError::Failed { key, source }),
            End::Lost(source) => Err(TurnError::Lost { key, source }),
        }
    }
}
