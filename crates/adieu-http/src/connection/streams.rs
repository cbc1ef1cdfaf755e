//! The tasks of an HTTP/2 connection's streams, which the connection owns.

use std::sync::{Arc, Mutex};

use adieu_core::adapter::lock;
use tokio::task::JoinSet;

/// Spawns the tasks that hyper runs for a connection, and aborts them with the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Streams {
    /// Aborts the remaining tasks, and does not wait for them: their connection has ended.
    pub(super) fn abort(&self) {
        let tasks = std::mem::take(&mut *self.lock());
        drop(tasks);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        lock(&self.tasks)
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut tasks = self.lock();
        // Tasks that have ended are removed here, because no other code joins them.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            stream.await;
        });
    }
}
