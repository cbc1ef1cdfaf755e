//! Contains panics in the application's code, and extracts their messages.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a method of a node. Returns `None` if it panics: the user may have implemented it.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
