//! Work that is done once for a whole fleet, whenever its replicas start.

use adieu_core::Deadline;

use crate::lease::{Lease, MarkError};
use crate::lock::{AcquireError, Lock};
use crate::lock_backend::{BoxError, Marker};
use crate::turn::{TurnError, Waiting};
use crate::work::Work;

/// The result of work that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once<T> {
    /// This replica ran the work now.
    Ran(T),
    /// The work had been done before.
    AlreadyDone,
}

/// The context of work that is done once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OnceCx {
    /// The lease under which the work runs. Send its fence with each write.
    pub lease: Lease,
    /// The number of this attempt, from 1. After a crash or a failure it is not known how far the
    /// previous attempt came.
    pub attempt: u32,
}

/// The progress of the work, as the marker records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Begun(u32),
    Done,
}

// === impl OnceCx ===

impl OnceCx {
    /// Returns whether an earlier attempt was started and did not complete.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.attempt > 1
    }
}

// === impl Progress ===

impl Progress {
    /// Parses a marker. An unreadable one counts as begun: the work may be incomplete, and this is
    /// not the first attempt.
    fn of(marker: Option<Marker>) -> Option<Self> {
        let value = marker?.value;
        Some(match value.strip_prefix("begun ") {
            None if value == "done" => Self::Done,
            begun => Self::Begun(begun.and_then(|n| n.parse().ok()).unwrap_or(1)),
        })
    }

    fn to_value(self) -> String {
        match self {
            Self::Begun(attempt) => format!("begun {attempt}"),
            Self::Done => "done".to_owned(),
        }
    }
}

// === impl Lock ===

impl Lock {
    /// Runs work once for the whole fleet, such as a migration. The key and the version identify the
    /// work.
    ///
    /// The first replica to acquire the lock runs `step` under its lease, and then records in a marker
    /// that it is done, with its fence. Other replicas wait for the marker; replicas that arrive
    /// later find it and skip the step. If the replica that runs the step fails, crashes or loses its
    /// connection, the next replica runs it again with a higher fence, and [`OnceCx::attempt`] is
    /// higher.
    ///
    /// The step and its marker are not atomic: after a crash between the two, the step runs again, as
    /// a retry. A step that must not be repeated should record its own completion in the store that it
    /// writes to, with the fence.
    ///
    /// **The marker is as durable as the backend.** It stays in the store for ever. If the store loses
    /// it, the step runs again, as a first attempt: [`Memory`](crate::Memory) loses it with the
    /// process; Redis when it is flushed, when it is restarted without persistence, or when a replica
    /// takes over that did not have the value; Postgres, etcd and a folder when they are restored from
    /// an older backup. For work that must not be repeated, use a store that keeps every write that it
    /// has acknowledged.
    ///
    /// Versions are independent of each other, except that two of one key never run at the same time.
    /// `until` limits the wait. It does not limit `step`.
    ///
    /// # Errors
    ///
    /// If `step` fails, its lease is lost, or its marker cannot be written; if the step was neither
    /// done by another replica nor started by this one in time; or if the backend has no fences.
    ///
    /// # Panics
    ///
    /// If `step` panics, after the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `step`. The lock is then released in the background, and another
    /// replica retries.
    pub async fn once_per_fleet<F, Fut, T, E>(
        &self,
        version: impl AsRef<str>,
        until: Deadline,
        step: F,
    ) -> Result<Once<T>, TurnError>
    where
        F: FnOnce(OnceCx) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<BoxError>,
    {
        self.once_per_fleet_of(Work::OfKey, version.as_ref(), until, step).await
    }

    /// Runs one of several pieces of work that share this lock; see [`Lock::once_per_fleet`].
    pub(crate) async fn once_per_fleet_of<F, Fut, T, E>(
        &self,
        which: Work,
        version: &str,
        until: Deadline,
        step: F,
    ) -> Result<Once<T>, TurnError>
    where
        F: FnOnce(OnceCx) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<BoxError>,
    {
        let key = self.key().clone();
        self.check_version(version)?;
        self.check_fences()?;
        let name = which.once_marker(version);
        let mut waiting = Waiting::new(self, until);
        let (lease, attempt) = loop {
            if Progress::of(waiting.marker(&name).await?) == Some(Progress::Done) {
                return Ok(Once::AlreadyDone);
            }
            let error = match waiting.turn_if_free(self.owner()).await? {
                Ok(lease) => {
                    // Read again under the lock, where no other replica can change it.
                    let attempt = match Progress::of(waiting.marker(&name).await?) {
                        Some(Progress::Done) => {
                            self.release(lease).await;
                            return Ok(Once::AlreadyDone);
                        }
                        Some(Progress::Begun(attempt)) => attempt.saturating_add(1),
                        None => 1,
                    };
                    let begun = Progress::Begun(attempt).to_value();
                    match self.mark(&lease, &name, &begun).await {
                        Ok(()) => break (lease, attempt),
                        Err(MarkError::Backend { source, .. }) if source.is_permanent() => {
                            self.release(lease).await;
                            return Err(self.no_turn(AcquireError::Backend { key, source }));
                        }
                        // The lease was lost before the work began.
                        Err(_) => self.release(lease).await,
                    }
                    continue;
                }
                Err(error) => error,
            };
            waiting.pause(error).await?;
        };
        let cx = OnceCx { lease: lease.clone(), attempt };
        let done = Progress::Done.to_value();
        let (ran, marked) = self.run(lease, step(cx), (&name, &done)).await?;
        marked.map_err(|source| TurnError::NotMarked { key, source })?;
        Ok(Once::Ran(ran))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_backend::Fence;

    #[test]
    fn progress_survives_a_round_trip_through_a_marker() {
        let read = |value: &str| {
            let marker = Marker { value: value.to_owned(), fence: Fence::new(1) };
            Progress::of(Some(marker))
        };
        for progress in [Progress::Done, Progress::Begun(1), Progress::Begun(7)] {
            assert_eq!(read(&progress.to_value()), Some(progress));
        }
        assert_eq!(read("nonsense"), Some(Progress::Begun(1)));
        assert_eq!(Progress::of(None), None);
    }
}
