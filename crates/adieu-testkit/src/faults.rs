//! Tasks that misbehave. Each can be added to a shutdown directly.
//!
//! ```
//! # use adieu_core::{Phase, Shutdown};
//! use adieu_testkit::faults;
//!
//! let shutdown = Shutdown::new();
//! shutdown.add_task(Phase::SERVICE_STOP, "stuck", faults::hang)?;
//! shutdown.add_blocking_task(Phase::SERVICE_STOP, "stuck hard", faults::block)?;
//! # Ok::<(), adieu_core::AddTaskError>(())
//! ```

use adieu_core::TaskCx;

/// Never ends and ignores its token. Can be aborted.
pub async fn hang(_: TaskCx) {
    std::future::pending().await
}

/// Ends when its token is cancelled.
pub async fn listen(cx: TaskCx) {
    cx.cancelled().await;
}

/// Ends when the shutdown becomes urgent, for example on a second signal.
pub async fn idle(cx: TaskCx) {
    cx.hurried().await;
}

/// Fails immediately.
///
/// # Errors
///
/// Always.
pub async fn fail(_: TaskCx) -> Result<(), &'static str> {
    Err("it was made to fail")
}

/// Panics immediately.
///
/// # Panics
///
/// Always.
#[expect(clippy::panic, reason = "its purpose")]
pub async fn panic(_: TaskCx) {
    panic!("it was made to panic")
}

/// Blocks its thread for ever. An async task that calls it blocks a worker thread.
pub fn block(_: TaskCx) {
    loop {
        std::thread::park();
    }
}
