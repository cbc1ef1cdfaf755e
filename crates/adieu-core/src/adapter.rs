//! Functions for crates that connect a server, actors or locks to a shutdown. Applications do not
//! need them.

mod command;
mod metrics;
mod page;

use std::error::Error;

pub use command::{Command, CommandError};
pub use metrics::{Family, Metrics};
pub use page::{NamedPage, Page, PublishError, pages, publish};

#[doc(hidden)]
pub use crate::body::is_body_running;
pub use crate::coordinator::WorkSource;
pub use crate::gate::ListInFlight;
pub use crate::log_thread::log_aside;
pub use crate::thread_index::ThreadIndex;
pub use crate::time::boot::BootClock;

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

/// Adds a source of work, such as an actor system, whose work the report must account for.
///
/// When the shutdown is over, however it went, the functions of the source are called. They return the
/// accepted work that is not finished and that no task of the shutdown has reported, in one line; `None`
/// if there is none. If they return something, the report contains it with the name of the source, and
/// the outcome is not clean. So work cannot be lost unnoticed in a phase that is disabled, was skipped or
/// came too early.
///
/// The functions must not block, and must not own a [`Shutdown`]. They may be called several times: an
/// aborted shutdown that is resumed ends again. They are dropped after the end.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use adieu_core::adapter::{WorkSource, account_for};
/// use adieu_core::{Reason, Shutdown};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (shutdown, queued) = (Shutdown::new(), Arc::new(AtomicUsize::new(3)));
/// let mailer = WorkSource::new("mailer").remaining(move || match queued.load(Ordering::Relaxed) {
///     0 => None,
///     mails => Some(format!("{mails} mails not sent")),
/// });
/// account_for(&shutdown, mailer);
/// let report = shutdown.run(Reason::Unknown).await?;
/// assert!(!report.is_clean());
/// assert_eq!(report.findings[0].what, "3 mails not sent");
/// # Ok(())
/// # }
/// ```
pub fn account_for(shutdown: &Shutdown, source: WorkSource) {
    shutdown.shared().account_for(source);
}

/// Logs a warning, once for each shutdown, if its configuration prevents that actors are drained:
/// `terminate-actor-system` is off, or the phase `actor-system-terminate` is disabled.
///
/// For adapters whose tasks in that phase drain actors.
pub fn warn_of_undrained_actors(shutdown: &Shutdown) {
    shutdown.shared().warn_of_undrained_actors();
}

/// Calls `refresh` each time before the readiness or the checks of this shutdown are read.
///
/// For a check that depends on the time: the task that reports it may not get to run. `refresh` must be
/// fast, must not block, and must not own a [`Shutdown`].
pub fn refresh_before_reading(shutdown: &Shutdown, refresh: impl Fn() + Send + Sync + 'static) {
    shutdown.shared().refresh_before_reading(refresh);
}

/// Returns the text of an error and of its causes. A cause that the text already ends with is not
/// repeated.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    crate::task::chain(error)
}
