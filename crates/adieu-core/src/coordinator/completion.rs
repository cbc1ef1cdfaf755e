//! Waiting for the report.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Shared;
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
    /// The runtime that the shutdown runs on.
    home: Option<Handle>,
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
    #[error("the shutdown needs the thread that was to wait for it: await it instead")]
    OnlyThread,
    /// The runtime that the shutdown ran on was dropped before it was over.
    #[error("the runtime was dropped before the shutdown was over")]
    RuntimeGone,
}

// === impl Completion ===

impl Completion {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let mut state = shared.watch();
        let waiting = Box::pin(async move {
            match state.wait_for(|state| state.is_settled()).await {
                Ok(state) => state.report().ok_or(AwaitError::RuntimeGone),
                Err(_) => Err(AwaitError::RuntimeGone),
            }
        });
        Self { key: Shared::key(shared), home: shared.home(), waiting }
    }

    /// Blocks this thread until the shutdown is over. For threads outside any runtime.
    ///
    /// # Errors
    ///
    /// As awaiting it.
    pub fn wait(mut self) -> Result<Arc<Report>, AwaitError> {
        // On the only thread of the runtime that the shutdown needs, this would wait for itself.
        let only_thread = |home: &Handle| {
            home.runtime_flavor() == RuntimeFlavor::CurrentThread
                && Handle::try_current().is_ok_and(|current| current.id() == home.id())
        };
        if self.home.as_ref().is_some_and(only_thread) {
            return Err(AwaitError::OnlyThread);
        }
        park::block_on(Pin::new(&mut self))
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
