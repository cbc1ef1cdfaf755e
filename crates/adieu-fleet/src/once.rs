//! Work that is done once for a whole fleet, whoever comes when.

use std::panic::resume_unwind;

use adieu_core::Deadline;

use crate::lease::{Lease, MarkError};
use crate::lock::{AcquireError, Lock};
use crate::locks::{BoxError, Marker};
use crate::turn::{End, TurnError, Waiting};
use crate::work::Work;

/// What became of work that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once<T> {
    /// We have done it, just now.
    Ran(T),
    /// It had been done.
    AlreadyDone,
}

/// What work that is done once is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OnceCx {
    /// The lease under which it is done, with the fence to do it with.
    pub lease: Lease,
    /// Which attempt this is; the first is 1. After a crash or a failure nobody knows how far the
    /// one before has come.
    pub attempt: u32,
}

/// How far it is, as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Begun(u32),
    Done,
}

// === impl OnceCx ===

impl OnceCx {
    /// Whether it has been begun before, and not ended.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.attempt > 1
    }
}

// === impl Progress ===

impl Progress {
    /// What cannot be read counts as begun: it is not done for sure, and not the first time.
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
    /// Does something once for the whole fleet, such as a migration: the key and the version say
    /// what.
    ///
    /// Who gets the lock first runs `step` under its lease, and writes down that it is done, with
    /// its fence; all others wait for that, and whoever comes later skips it. If who runs it fails,
    /// crashes or is cut off, the next one runs it again with a higher fence, and is told.
    ///
    /// Nothing can make a step and the note that it is done one and the same: after a crash between
    /// the two it is run again, as a retry. A step that must not be repeated should write its own
    /// mark where it writes, with the fence.
    ///
    /// **It is as durable as its backend.** That a version is done is a value in the store, and
    /// stays there for ever. A store that loses it runs the step again, as a first attempt:
    /// [`Memory`](crate::Memory) with every process, Redis when it is flushed, when it is restarted
    /// without having written to its disk, or when a replica takes over that did not have the value;
    /// Postgres, etcd and a folder when they are restored from an older backup. For what must not be
    /// repeated, use a store that keeps what it has acknowledged.
    ///
    /// Versions are independent of each other, except that two of one key never run at a time.
    /// `until` is when waiting ends. It does not limit `step`.
    ///
    /// # Errors
    ///
    /// If `step` fails, its lease is lost, or it cannot be written down; if it was neither done nor
    /// to be begun in time; or if the backend has no fences.
    ///
    /// # Panics
    ///
    /// As `step` does, after the lock was released.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `step`; then the lock is released in the background, and somebody else
    /// tries again.
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

    /// As [`Lock::once_per_fleet`], for one of several pieces of work that share this lock.
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
        self.must_know_version(version)?;
        self.must_have_fences()?;
        let name = which.once_marker(version);
        let mut waiting = Waiting::new(self, until);
        let (lease, attempt) = loop {
            if Progress::of(waiting.marker(&name).await?) == Some(Progress::Done) {
                return Ok(Once::AlreadyDone);
            }
            let met = match waiting.turn_if_free(self.owner()).await? {
                Ok(lease) => {
                    // Asked again, under the lock: now nobody changes it but us.
                    let attempt = match Progress::of(waiting.marker(&name).await?) {
                        Some(Progress::Done) => {
                            self.give_back(lease).await;
                            return Ok(Once::AlreadyDone);
                        }
                        Some(Progress::Begun(attempt)) => attempt.saturating_add(1),
                        None => 1,
                    };
                    let begun = Progress::Begun(attempt).to_value();
                    match self.mark(&lease, &name, &begun).await {
                        Ok(()) => break (lease, attempt),
                        Err(MarkError::Backend { source, .. }) if source.is_permanent() => {
                            self.give_back(lease).await;
                            return Err(self.no_turn(AcquireError::Backend { key, source }));
                        }
                        // Lost before it has begun.
                        Err(_) => self.give_back(lease).await,
                    }
                    continue;
                }
                Err(met) => met,
            };
            waiting.pause(met).await?;
        };
        let cx = OnceCx { lease: lease.clone(), attempt };
        let end = match self.run(&lease, step(cx)).await {
            Ok(end) => end,
            Err(panic) => {
                self.give_back(lease).await;
                resume_unwind(panic);
            }
        };
        let done = match end {
            End::Done(done) => {
                let marked = self.mark(&lease, &name, &Progress::Done.to_value()).await;
                marked.map(|()| done).map_err(|source| TurnError::NotMarked { key, source })
            }
            End::Failed(source) => Err(TurnError::Failed { key, source }),
            End::Lost(source) => Err(TurnError::Lost { key, source }),
        };
        self.give_back(lease).await;
        done.map(Once::Ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Fence;

    #[test]
    fn what_is_written_down_can_be_read() {
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
