//! How work ends when its gate is drained.

/// How work ends when its gate is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainClass {
    /// It finishes within the window: a request, a message, a job.
    #[default]
    Finish,
    /// It ends at once, because its client will come back: a stream of events, a WebSocket, a watch.
    CloseNow,
    /// It is told, and ends itself where it can go on later: a long export with a cursor.
    Resumable,
}
