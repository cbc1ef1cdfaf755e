//! The loop behind [`Lock::lead`]: acquires the lock, runs the work of a term, and releases the lock.

use std::any::Any;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Deadline, LoopCx, TaskResult};
use tokio_util::sync::CancellationToken;

use super::{Shared, Term};
use crate::journal;
use crate::lease::{Lease, LeaseLost};
use crate::lock::Lock;
use crate::lock_backend::{BoxError, Fence};
use crate::turn::catch_panic;

pub(super) struct Campaign<W> {
    pub(super) lock: Lock,
    pub(super) work: W,
    pub(super) shared: Arc<Shared>,
}

/// How a term ended.
enum End {
    /// The work returned, or was signalled to stop.
    Resigned,
    Lost,
    Failed(BoxError),
}

/// A term that [`Leadership`](super::Leadership) shows, until it is dropped.
struct ActiveTerm<'a> {
    shared: &'a Shared,
    fence: Fence,
    /// Cancelled when the term must end.
    stop: CancellationToken,
}

/// How long one wait for the lock lasts. The next one follows it.
const WAIT: Duration = Duration::from_secs(60 * 60);

// === impl Campaign ===

impl<W, Fut> Campaign<W>
where
    W: Fn(Term) -> Fut + Send + Sync,
    Fut: Future<Output: TaskResult> + Send,
{
    pub(super) async fn run(&self, cx: &LoopCx) -> Result<(), BoxError> {
        while cx.may_take().await {
            // If the loop is stopped meanwhile, a lock that is granted later is released.
            let acquiring = self.lock.acquire(Deadline::after(WAIT));
            let lease = match cx.take(acquiring).await {
                Some(Ok(lease)) => lease,
                // The loop is restarted after a pause that doubles.
                Some(Err(error)) if error.is_permanent() => return Err(error.into()),
                Some(Err(_)) | None => continue,
            };
            let Ok(pass) = cx.enter() else {
                self.lock.release(lease).await;
                continue;
            };
            let term = ActiveTerm::begin(&self.shared, lease.fence());
            // Bound again, so that it is dropped before `term` if this future is dropped.
            let lease = lease;
            match pass.scope(self.lead(cx, &lease, term.stop.clone())).await {
                End::Resigned => {
                    self.lock.release(lease).await;
                    drop(term);
                    // Let another replica lead first.
                    cx.take(tokio::time::sleep(self.lock.ttl() / 2)).await;
                }
                End::Failed(error) => {
                    self.lock.release(lease).await;
                    return Err(error);
                }
                End::Lost => {
                    drop(term);
                    self.lock.release(lease).await;
                }
            }
        }
        Ok(())
    }

    /// Runs one term, until its work has ended or been dropped.
    async fn lead(&self, cx: &LoopCx, lease: &Lease, stop: CancellationToken) -> End {
        let term = Term { lease: lease.clone(), stop: stop.clone() };
        let work = async { (self.work)(term).await.into_result() };
        let mut running = pin!(catch_panic(lease.guard(work)));
        let lost = lease.lost();
        tokio::select! {
            ended = &mut running => return End::of(ended),
            () = cx.takes_no_more() => {}
            () = stop.cancelled() => {}
            () = lost.cancelled() => {}
        }
        stop.cancel();
        tokio::select! {
            ended = running => End::of(ended),
            () = cx.stops_now() => End::Resigned,
            // A resignation without a shutdown has no phase that ends the wait for the work.
            () = tokio::time::sleep(self.lock.ttl()), if !cx.gate().is_closed() => End::Resigned,
        }
    }
}

// === impl End ===

impl End {
    fn of(ended: Result<Result<Result<(), BoxError>, LeaseLost>, Box<dyn Any + Send>>) -> Self {
        match ended {
            Ok(Ok(Ok(()))) => Self::Resigned,
            Ok(Ok(Err(error))) => Self::Failed(error),
            Ok(Err(_)) => Self::Lost,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
                Self::Failed(format!("panicked: {text}").into())
            }
        }
    }
}

// === impl ActiveTerm ===

impl<'a> ActiveTerm<'a> {
    fn begin(shared: &'a Shared, fence: Fence) -> Self {
        journal::leading(&shared.key, fence);
        let stop = CancellationToken::new();
        shared.set_term(Some((fence, stop.clone())));
        Self { shared, fence, stop }
    }
}

impl Drop for ActiveTerm<'_> {
    fn drop(&mut self) {
        journal::no_longer_leading(&self.shared.key, self.fence);
        self.shared.set_term(None);
    }
}
