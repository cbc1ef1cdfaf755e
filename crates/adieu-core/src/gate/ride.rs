//! Riding on a pass: what runs inside admitted work may enter its gate again.
//!
//! While a [`Scope`] is polled, its gate is on a list of this thread. The list is looked at only
//! when a gate refuses, so entering an open gate costs nothing more.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Pass;
use super::pool::Inner;

thread_local! {
    static INSIDE: RefCell<Vec<&'static Inner>> = const { RefCell::new(Vec::new()) };
}

pin_project! {
    /// Work that runs under a [`Pass`]; see [`Pass::scope`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Scope<F> {
        #[pin]
        work: F,
        // After the work: it is over only when the work has been dropped.
        pass: Pass,
    }
}

/// Whether this code runs inside a scope of this gate. A pass is then alive: the scope holds it.
pub(super) fn is_inside(gate: &'static Inner) -> bool {
    let is_gate = |inside: &&'static Inner| std::ptr::eq(*inside, gate);
    INSIDE.try_with(|inside| inside.borrow().iter().any(is_gate)).unwrap_or(false)
}

/// The gate of the innermost scope in which this code runs.
pub(super) fn innermost() -> Option<&'static Inner> {
    INSIDE.try_with(|inside| inside.borrow().last().copied()).ok().flatten()
}

/// Runs `work` on a pass of this gate. The caller holds one for as long.
pub(super) fn within<T>(gate: &'static Inner, work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
        }
    }
    let entered = INSIDE.try_with(|inside| inside.borrow_mut().push(gate));
    let _leave = entered.is_ok().then_some(Leave);
    work()
}

// === impl Scope ===

impl<F> Scope<F> {
    pub(super) fn new(pass: Pass, work: F) -> Self {
        Self { work, pass }
    }
}

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
