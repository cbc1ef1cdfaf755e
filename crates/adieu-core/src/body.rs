//! Whether the code of the body of `main` runs on this thread.

use std::cell::Cell;
use std::pin::pin;

thread_local! {
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that the body runs on this thread, until it is dropped.
struct Running {
    was_running: bool,
}

/// Awaits the body of `main`.
pub(crate) async fn run_as_body<T>(body: impl Future<Output = T>) -> T {
    let mut body = pin!(body);
    std::future::poll_fn(|cx| {
        let _running = Running { was_running: IS_RUNNING.replace(true) };
        body.as_mut().poll(cx)
    })
    .await
}

/// Returns whether the code that runs here is that of the body of [`main`](crate::main), and not of a
/// task that the body has spawned.
#[must_use]
pub fn is_body_running() -> bool {
    IS_RUNNING.get()
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.set(self.was_running);
    }
}
