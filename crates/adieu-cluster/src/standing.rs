//! Whether this node may act, readable by every task of the process; and work that ends when the
//! node may no longer act.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use crate::time::{Duration, Instant, now};

/// The instant until which this node may act. After that it never acts again.
#[derive(Debug)]
pub(crate) struct Standing {
    origin: Instant,
    /// In nanoseconds since `origin`. It only increases.
    valid: AtomicU64,
    /// As `lost`, without its lock: entities read it before each poll.
    is_lost: AtomicBool,
    lost: CancellationToken,
}

// === impl Standing ===

impl Standing {
    pub(crate) fn new(origin: Instant, until: Instant) -> Self {
        let (valid, is_lost) = (AtomicU64::new(0), AtomicBool::new(false));
        let standing = Self { origin, valid, is_lost, lost: CancellationToken::new() };
        standing.extend(until);
        standing
    }

    pub(crate) fn extend(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.origin).as_nanos();
        // Relaxed, here and below, because no other memory depends on this value.
        self.valid.fetch_max(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.lost.cancel();
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.origin + Duration::from_nanos(self.valid.load(Ordering::Relaxed))
    }

    /// Returns whether this node may act now. When the first caller finds that it may not, the result
    /// is final.
    pub(crate) fn is_good(&self) -> bool {
        self.is_good_at(now())
    }

    /// As [`Standing::is_good`], for a caller that has just read the clock.
    pub(crate) fn is_good_at(&self, now: Instant) -> bool {
        if !self.is_lost() && now >= self.valid_until() {
            self.lose();
        }
        !self.is_lost()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Waits until this node may no longer act.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Runs work for as long as this node may act. The clock is read before each poll, so that after
    /// a suspension the work does not run first. Returns `None` if the work was dropped.
    pub(crate) async fn guard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|cx| {
            // Polled first, so that its waker is registered before work can become pending.
            if lost.as_mut().poll(cx).is_ready() || !self.is_good() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s604_work_is_not_polled_after_the_session_is_bad() {
        let standing = Arc::new(Standing::new(now(), now() + Duration::from_secs(8)));
        let polled_late = Arc::new(AtomicBool::new(false));
        let (ends, seen) = (standing.valid_until(), Arc::clone(&polled_late));
        let work = async move {
            loop {
                tokio::time::sleep(Duration::from_secs(3)).await;
                seen.fetch_or(now() >= ends, Ordering::Relaxed);
            }
        };
        let none: Option<()> = standing.guard(work).await;
        assert!(none.is_none() && standing.is_lost());
        assert!(!polled_late.load(Ordering::Relaxed));
        standing.extend(now() + Duration::from_secs(60));
        assert!(!standing.is_good(), "a lost session became good again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_drops_work_that_nothing_else_wakes() {
        let standing = Arc::new(Standing::new(now(), now() + Duration::from_secs(60)));
        let loses = Arc::clone(&standing);
        let (ended, ()) = tokio::join!(standing.guard(std::future::pending::<()>()), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            loses.lose();
        });
        assert!(ended.is_none());
    }
}
