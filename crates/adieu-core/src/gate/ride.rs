//! Riding on a pass: what runs inside admitted work may enter its gate again.
//!
//! While a [`Scope`] is polled, its gate is noted on this thread. That is looked at only when a
//! gate refuses, so entering an open gate costs nothing more.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Pass;
use super::pool::Inner;

thread_local! {
    /// The gate of the innermost scope. Apart from the others, because mostly there are none.
    static INNERMOST: Cell<Option<&'static Inner>> = const { Cell::new(None) };
    static OTHERS: RefCell<Vec<&'static Inner>> = const { RefCell::new(Vec::new()) };
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
    let among_others = || OTHERS.try_with(|others| others.borrow().iter().any(is_gate));
    innermost().as_ref().is_some_and(is_gate) || among_others().unwrap_or(false)
}

/// The gate of the innermost scope in which this code runs.
pub(super) fn innermost() -> Option<&'static Inner> {
    INNERMOST.get()
}

/// Runs `work` on a pass of this gate. The caller holds one for as long.
#[inline]
pub(super) fn within<T>(gate: &'static Inner, work: impl FnOnce() -> T) -> T {
    /// Whether there was a scope around this one.
    struct Leave(bool);
    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            INNERMOST.set(if self.0 { pop() } else { None });
        }
    }
    let outer = INNERMOST.replace(Some(gate));
    let _leave = Leave(outer.is_some_and(push));
    work()
}

/// False if the thread is at its end: then the outer scope is forgotten.
#[cold]
fn push(outer: &'static Inner) -> bool {
    OTHERS.try_with(|others| others.borrow_mut().push(outer)).is_ok()
}

#[cold]
fn pop() -> Option<&'static Inner> {
    OTHERS.try_with(|others| others.borrow_mut().pop()).ok().flatten()
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
