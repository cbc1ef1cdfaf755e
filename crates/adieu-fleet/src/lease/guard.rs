//! Runs work for as long as a lease is held, and not a moment longer.

use std::pin::pin;
use std::task::Poll;

use super::{Lease, Loss, Lost, Shared};
use crate::time::{Instant, now, sleep_until};

impl Lease {
    /// Runs `work` for as long as the lease is held.
    ///
    /// When the lease is lost, [`Lease::lost`] fires; `work` then has half of the margin to end by
    /// itself, and is dropped. If the backend says that the lock is somebody else's, it is dropped
    /// at once. Before each time that `work` is polled the clock is looked at: after a suspension
    /// it does not get to run first.
    ///
    /// What `work` has spawned is not part of it: give that a clone of the lease, and join it.
    ///
    /// # Errors
    ///
    /// If the lease was lost before `work` had ended. `work` is then gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `work`, and leaves the lease as it is.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let shared = &*self.shared;
        let mut work = pin!(work);
        let mut cut = pin!(shared.cut());
        std::future::poll_fn(|cx| {
            if let Some(lost) = shared.cut_at(now()) {
                return Poll::Ready(Err(lost));
            }
            // Asked first, so that the waker is known before work can be lost from sight.
            if let Poll::Ready(lost) = cut.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Runs a function that blocks, on a thread for such, while the lease is held. It cannot be
    /// dropped: it must look at [`Lease::lost`] or [`Lease::check`], and the lock is not released
    /// before it has ended, even if whoever waits for it is gone.
    ///
    /// # Errors
    ///
    /// If the lease was lost before it had ended. It may still run.
    ///
    /// # Panics
    ///
    /// As `work` does.
    ///
    /// # Cancel safety
    ///
    /// Dropping it does not stop `work`, which holds the lease until it ends.
    pub async fn guard_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Lease) -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let lease = self.clone();
        let running = tokio::task::spawn_blocking(move || work(&lease));
        match self.guard(running).await? {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and nobody will see this.
                Err(_) => Err(self.shared.as_lost(Loss::Expired)),
            },
        }
    }
}

impl Shared {
    /// Whether work must be gone at this time.
    fn cut_at(&self, now: Instant) -> Option<Lost> {
        let lost = self.check(now).err()?;
        let is_over = lost.loss == Loss::Refused || now >= self.last_moment();
        is_over.then_some(lost)
    }

    /// Waits until work must be gone.
    async fn cut(&self) -> Lost {
        self.lost.cancelled().await;
        let loss = self.loss.get().copied().unwrap_or(Loss::Expired);
        if loss == Loss::Expired {
            sleep_until(self.last_moment()).await;
        }
        self.as_lost(loss)
    }

    fn last_moment(&self) -> Instant {
        self.valid_until() + self.terms.grace()
    }
}
