//! How long actors should have to drain, by what they do.

use std::time::Duration;

/// How long actors should have to drain, by what they do.
///
/// An actor processes everything that it has accepted before it stops: think of the largest
/// backlog. What a killed actor leaves behind becomes dead letters.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "it has no values; it is a name for the constants")]
pub enum Timeouts {}

impl Timeouts {
    /// Workers that hold no state, such as those of an HTTP server.
    pub const STATELESS: Duration = Duration::from_secs(5);
    /// Actors that write to a database.
    pub const DATABASE_WRITES: Duration = Duration::from_secs(15);
    /// Event-sourced actors, which may be in the middle of a snapshot.
    pub const EVENT_SOURCED: Duration = Duration::from_secs(30);
    /// A pool of worker threads that send each other messages.
    pub const WORKER_THREADS: Duration = Duration::from_secs(30);

    /// What a killed actor has for its stop hook.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// What the phase that terminates a system keeps to report how the drain went.
    pub(crate) const SPARE: Duration = Duration::from_millis(100);
}
