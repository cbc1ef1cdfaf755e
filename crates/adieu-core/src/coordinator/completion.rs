//! Waits for the report.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Shared;
use super::await_error::AwaitError;
use super::runtime_state::{RuntimeState, runtime_state};
use crate::park;
use crate::report::Report;
use crate::task::is_inside;
use crate::time::real_now;

/// How often a blocked thread checks whether the runtime of the shutdown is still polled. If not,
/// no report will come.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the shutdown is over, and returns its report.
///
/// # Cancel safety
///
/// Cancel safe: dropping it neither stops nor delays the shutdown, and
/// [`Shutdown::completed`](crate::Shutdown::completed) returns another one at any time.
#[must_use = "the shutdown continues, but this does not wait for its end"]
pub struct Completion {
    key: usize,
    shared: Weak<Shared>,
    waiting: Pin<Box<dyn Future<Output = Result<Arc<Report>, AwaitError>> + Send>>,
}

// === impl Completion ===

impl Completion {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let mut state = shared.progress.subscribe();
        let waiting = Box::pin(async move {
            let settled = state.wait_for(|state| state.settled().is_some()).await;
            // While the shutdown runs, its driver holds it.
            let settled = settled.map_err(|_| AwaitError::NeverBegun)?.settled();
            settled.unwrap_or(Err(AwaitError::NeverBegun))
        });
        Self { key: Shared::key(shared), shared: Arc::downgrade(shared), waiting }
    }

    /// Blocks this thread until the shutdown is over. For threads outside any runtime.
    ///
    /// # Errors
    ///
    /// As when it is awaited. Also if the shutdown runs on a current-thread runtime that stands still,
    /// because this thread is its only one, or because no thread is in its `block_on`. The latter is
    /// detected at the deadline of the shutdown.
    pub fn wait(mut self) -> Result<Arc<Report>, AwaitError> {
        // It is not enough that this thread is inside the runtime: threads of the runtime's blocking
        // pool are, too, and may wait.
        let is_current =
            |home: &Handle| Handle::try_current().is_ok_and(|current| current.id() == home.id());
        if !is_inside(self.key) && self.stands_still(is_current) {
            return Err(AwaitError::OnlyThread);
        }
        let mut give_up = None;
        loop {
            if let Some(ended) =
                park::block_on_until(Pin::new(&mut self), real_now() + POLL_INTERVAL)
            {
                return ended;
            }
            let deadline = self.shared.upgrade().and_then(|shared| shared.deadline());
            let Some(deadline) = deadline else { continue };
            let give_up = *give_up.get_or_insert(real_now() + deadline.remaining() + POLL_INTERVAL);
            if real_now() > give_up && self.stands_still(|_| true) {
                return Err(AwaitError::StandsStill);
            }
        }
    }

    /// Returns whether the shutdown runs on a current-thread runtime that matches, and no thread polls its
    /// tasks.
    fn stands_still(&self, matches: impl Fn(&Handle) -> bool) -> bool {
        let home = self.shared.upgrade().and_then(|shared| shared.home());
        home.filter(|home| home.runtime_flavor() == RuntimeFlavor::CurrentThread)
            .filter(matches)
            .is_some_and(|home| runtime_state(&home) == RuntimeState::Stalled)
    }
}

impl Future for Completion {
    type Output = Result<Arc<Report>, AwaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if is_inside(self.key) {
            return Poll::Ready(Err(AwaitError::InsideTask));
        }
        self.waiting.as_mut().poll(cx)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").finish_non_exhaustive()
    }
}
