//! Functions for crates that connect a server, actors or locks to a shutdown. Applications do not
//! need them.

mod command;
mod metrics;
mod page;

use std::error::Error;

pub use command::{Command, CommandError};
pub use metrics::{Family, Metrics};
pub use page::{NamedPage, Page, PublishError, pages, publish};

pub use crate::log_thread::log_aside;

use crate::coordinator::Shutdown;

/// Logs one `tracing` event in the order of the shutdown's own lines.
///
/// `emit` runs on the thread that logs for the shutdown, so this function returns at once even if
/// the subscriber blocks. Without a subscriber the event is written to stderr, if
/// [`main`](crate::main) owns the process.
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

/// Returns the text of an error and of its causes. A cause that the text already ends with is not
/// repeated.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    crate::task::chain(error)
}
