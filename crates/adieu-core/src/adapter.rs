//! For crates that connect something to a shutdown: a server, actors, locks. Applications do not
//! need it.

use std::error::Error;

pub use crate::log_thread::log_aside;

use crate::coordinator::Shutdown;

/// Logs as `shutdown` does: `emit` logs one `tracing` event, on another thread, in the order of the
/// shutdown's own lines. Without a subscriber the event is written to stderr, if
/// [`main`](crate::main) owns the process.
///
/// Returns at once, whatever the subscriber does.
///
/// ```
/// use adieu_core::{Shutdown, adapter};
///
/// let shutdown = Shutdown::new();
/// adapter::log(&shutdown, || tracing::info!(name = "http", "listening"));
/// ```
pub fn log(shutdown: &Shutdown, emit: impl FnOnce() + Send + 'static) {
    shutdown.shared().journal().log(emit);
}

/// Returns the text of an error with its causes, each once.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    crate::task::chain(error)
}
