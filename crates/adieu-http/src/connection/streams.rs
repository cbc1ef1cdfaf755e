//! The streams of an HTTP/2 connection: each a task, all owned by the connection.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

/// Spawns what hyper wants to run beside a connection, and ends it with the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Streams {
    /// Aborts what is left. Nobody waits for it: its connection is gone.
    pub(super) fn end(&self) {
        let tasks = std::mem::take(&mut *self.lock());
        drop(tasks);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut tasks = self.lock();
        // Only the connection's own task comes here, so what has ended is taken in by the way.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            stream.await;
        });
    }
}
