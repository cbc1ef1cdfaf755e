//! Runs work only while a lease is held.

use std::pin::pin;
use std::task::Poll;

use super::{Lease, LeaseLost, LossCause, Shared};
use crate::time::{Instant, now, sleep_until};

impl Lease {
    /// Runs `work` while the lease is held.
    ///
    /// When the lease expires, [`Lease::lost`] fires, and `work` is dropped after half of the margin
    /// unless it has ended. When the backend reports that the claim no longer holds the lock, `work`
    /// is dropped immediately. The clock is checked before each poll of `work`, so that work does not
    /// continue first after the process was suspended.
    ///
    /// Tasks that `work` spawns are not part of it: give each a clone of the lease, and join it.
    ///
    /// # Errors
    ///
    /// If the lease was lost before `work` had ended. `work` has been dropped then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and does not affect the lease.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, LeaseLost> {
        let shared = &*self.shared;
        let mut work = pin!(work);
        let mut cut = pin!(shared.cut());
        std::future::poll_fn(|cx| {
            if let Some(lost) = shared.cut_at(now()) {
                return Poll::Ready(Err(lost));
            }
            // Polled before `work`, so that its waker is registered even if `work` never wakes.
            if let Poll::Ready(lost) = cut.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Runs a blocking function on the runtime's blocking threads while the lease is held.
    ///
    /// The function cannot be cancelled, so it must check [`Lease::lost`] or [`Lease::check`]. The
    /// lock is not released before the function has ended, even if this future is dropped.
    ///
    /// # Errors
    ///
    /// If the lease was lost before `work` had ended. `work` may still run.
    ///
    /// # Panics
    ///
    /// If `work` panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop `work`, which holds the lease until it ends.
    pub async fn guard_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Lease) -> T + Send + 'static,
    ) -> Result<T, LeaseLost> {
        let lease = self.clone();
        let running = tokio::task::spawn_blocking(move || work(&lease));
        match self.guard(running).await? {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, so this result is not observed.
                Err(_) => Err(self.shared.as_lost(LossCause::Expired)),
            },
        }
    }
}

impl Shared {
    /// Returns the loss if work must be dropped at this time.
    fn cut_at(&self, now: Instant) -> Option<LeaseLost> {
        let lost = self.check(now).err()?;
        let is_over = lost.loss == LossCause::Refused || now >= self.last_moment();
        is_over.then_some(lost)
    }

    /// Waits until work must be dropped.
    async fn cut(&self) -> LeaseLost {
        self.lost.cancelled().await;
        let loss = self.loss.get().copied().unwrap_or(LossCause::Expired);
        if loss == LossCause::Expired {
            sleep_until(self.last_moment()).await;
        }
        self.as_lost(loss)
    }

    /// Returns when work under an expired lease is dropped.
    fn last_moment(&self) -> Instant {
        self.valid_until() + self.terms.grace()
    }
}
