//! Functions for crates that connect a server, actors or locks to a shutdown. Applications do not
//! need them.

mod command;
mod metrics;
mod page;
mod tables;

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

pub use command::{Command, CommandError};
pub use metrics::{Family, Metrics};
pub use page::{NamedPage, Page, PublishError, pages, publish};
pub use tables::{has_table, read_block, read_table};

pub use crate::body::is_body_running;
pub use crate::config::blocks::Block;
pub use crate::coordinator::WorkSource;
pub use crate::gate::ListInFlight;
pub use crate::log_thread::log_aside;
pub use crate::sync::lock;
pub use crate::thread_index::ThreadIndex;
pub use crate::time::boot::BootClock;

use crate::config::Config;
use crate::coordinator::Shutdown;
use crate::task::TaskSpec;

/// The longest time that a configuration may name: a year. It cannot overflow the clock.
pub const LONGEST_TIME: Duration = crate::plan::LONGEST;

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

/// Returns the configuration of the shutdown. An adapter reads its own tables from it, with
/// [`read_table`] or [`read_block`].
pub fn config(shutdown: &Shutdown) -> &Config {
    shutdown.config()
}

/// Returns the value of this type that belongs to the shutdown, for parts of an adapter that have to
/// find each other. It is created on first use, and dropped with the shutdown.
#[must_use]
pub fn extension<T: Default + Send + Sync + 'static>(shutdown: &Shutdown) -> Arc<T> {
    shutdown.extension()
}

/// Does what SIGTERM would do, for a request that arrived in another way, which is logged as `via`. It
/// never ends the process.
pub fn receive_request(shutdown: &Shutdown, via: &'static str) {
    shutdown.receive_request(via);
}

/// Stores an error that was returned only because the shutdown had begun. A body of
/// [`main`](crate::main) that returns it has not failed.
pub fn note_refusal(shutdown: &Shutdown, error: &dyn Display) {
    shutdown.note_refusal(error);
}

/// Runs the task on the library's own runtime, which the application cannot block.
///
/// Only for tasks that call no code of the application and need no I/O of its runtime.
pub fn only_waits(task: TaskSpec) -> TaskSpec {
    task.only_waits()
}
