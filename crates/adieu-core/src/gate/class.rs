//! How work ends when its gate is drained.

/// How work ends when its gate is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainClass {
    /// It finishes within the window: a request, a message, a job.
    #[default]
    Finish,
    /// It ends at once, because its client will reconnect: a stream of events, a WebSocket, a watch.
    CloseNow,
    /// It is notified, and ends where it can be resumed later: a long export with a cursor.
    Resumable,
}
