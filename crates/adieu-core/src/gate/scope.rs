//! A future that runs on a pass.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::pass::Pass;

pin_project! {
    /// Work that runs under a [`Pass`]; see [`Pass::scope`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Scope<F> {
        #[pin]
        work: F,
        // Declared after the work, so that it is dropped after it.
        pass: Pass,
    }
}

// === impl Pass ===

impl Pass {
    /// Runs a future on this pass. Inside it, [`Gate::enter`](super::Gate::enter) on the same gate
    /// succeeds even when the gate is closed, because admitted work may start the work that it needs.
    ///
    /// This holds for everything that is polled within `work`: in `join!`, in timeouts. It does not hold
    /// for tasks that `work` spawns. Give them a clone of the pass, or use
    /// [`Gate::spawn`](super::Gate::spawn).
    pub fn scope<F: Future>(self, work: F) -> Scope<F> {
        Scope { work, pass: self }
    }
}

// === impl Scope ===

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let work = this.work;
        this.pass.within(|| work.poll(cx))
    }
}

impl<F> std::fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("pass", &self.pass).finish_non_exhaustive()
    }
}
