//! The hook around each poll of an actor's code.

use std::fmt;

/// Runs around each poll of the code of an actor: its start, its handlers and its stop hook. See
/// [`ActorSystem::spawn_around`](crate::ActorSystem::spawn_around).
pub trait Around: fmt::Debug + Send + Sync + 'static {
    /// Calls `poll`, or returns without calling it if the actor must not run now. An actor that was not
    /// polled is not woken for that, so an implementation that refuses must kill it.
    fn poll(&self, poll: &mut dyn FnMut());
}
