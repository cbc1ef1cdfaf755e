//! Waiting for the report.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Shared;
use super::home::{Home, look_at};
use crate::park;
use crate::report::Report;
use crate::task::is_inside;

/// Waits until the shutdown is over, and gives its report.
///
/// # Cancel safety
///
/// Cancel safe: dropping it neither stops nor delays the shutdown, and another one can be had at
/// any time.
#[must_use = "the shutdown goes on without it, but nobody waits for its end"]
pub struct Completion {
    key: usize,
    shared: Weak<Shared>,
    waiting: Pin<Box<dyn Future<Output = Result<Arc<Report>, AwaitError>> + Send>>,
}

/// Why the end of a shutdown could not be awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AwaitError {
    /// The shutdown waits for the task, so the task cannot wait for the shutdown.
    #[error("a task cannot wait for the end of the shutdown that it is part of")]
    InsideTask,
    /// Blocking the only thread of the runtime that the shutdown runs on would block it, too.
    #[error(
        "the shutdown runs on this current-thread runtime, which stands still while this thread \
         waits: await the shutdown instead of blocking"
    )]
    OnlyThread,
    /// The runtime that the shutdown ran on was dropped before it was over.
    #[error(
        "the runtime was dropped before the shutdown was over: await the shutdown before the \
         runtime is dropped"
    )]
    RuntimeGone,
    /// What runs the shutdown panicked, and there will be no report.
    #[error(
        "the driver of the shutdown panicked: see the message of the panic; if the runtime has no \
         timers, build it with `enable_time` or `enable_all`"
    )]
    DriverPanicked,
    /// Every handle was dropped before the shutdown had begun.
    #[error("the last handle of the shutdown was dropped before the shutdown had begun")]
    NeverBegun,
}

// === impl Completion ===

impl Completion {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let mut state = shared.watch();
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
    /// As awaiting it; also on the only thread of the runtime that the shutdown runs on.
    pub fn wait(mut self) -> Result<Arc<Report>, AwaitError> {
        if !is_inside(self.key) && self.is_on_only_thread() {
            return Err(AwaitError::OnlyThread);
        }
        park::block_on(Pin::new(&mut self))
    }

    /// Whether the shutdown runs on a current-thread runtime that stands still while this thread
    /// waits.
    ///
    /// That this thread is inside that runtime does not decide it: threads of its blocking pool are
    /// so, too, and may wait.
    fn is_on_only_thread(&self) -> bool {
        let home = self.shared.upgrade().and_then(|shared| shared.home());
        home.filter(|home| home.runtime_flavor() == RuntimeFlavor::CurrentThread)
            .filter(|home| Handle::try_current().is_ok_and(|current| current.id() == home.id()))
            .is_some_and(|home| look_at(&home) == Home::StandsStill)
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
