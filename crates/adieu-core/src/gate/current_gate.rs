//! Lets code that runs on a pass enter the gate of that pass again.
//!
//! While a [`Scope`](super::Scope) is polled, a thread-local variable names its gate. The variable is read only when a
//! gate refuses work, so it costs nothing to enter an open gate.

use std::cell::{Cell, RefCell};

use super::pool::GateMemory;

thread_local! {
    /// The gate of the innermost scope. Separate from the others, because usually there is only one.
    static INNERMOST: Cell<Option<&'static GateMemory>> = const { Cell::new(None) };
    static OTHERS: RefCell<Vec<&'static GateMemory>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether this code runs inside a scope of this gate. The scope holds a pass.
pub(super) fn is_inside(gate: &'static GateMemory) -> bool {
    let is_gate = |inside: &&'static GateMemory| std::ptr::eq(*inside, gate);
    let among_others = || OTHERS.try_with(|others| others.borrow().iter().any(is_gate));
    innermost().as_ref().is_some_and(is_gate) || among_others().unwrap_or(false)
}

/// Returns the gate of the innermost scope in which this code runs.
pub(super) fn innermost() -> Option<&'static GateMemory> {
    INNERMOST.get()
}

/// Runs `work` on a pass of this gate, which the caller holds until this returns.
#[inline]
pub(super) fn within<T>(gate: &'static GateMemory, work: impl FnOnce() -> T) -> T {
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

/// Returns false if the thread is ending. The outer scope is then lost.
#[cold]
fn push(outer: &'static GateMemory) -> bool {
    OTHERS.try_with(|others| others.borrow_mut().push(outer)).is_ok()
}

#[cold]
fn pop() -> Option<&'static GateMemory> {
    OTHERS.try_with(|others| others.borrow_mut().pop()).ok().flatten()
}
