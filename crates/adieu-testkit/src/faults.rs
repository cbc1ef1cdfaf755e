//! Tasks that misbehave. Each can be added as it is.
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

/// Never ends by itself and does not listen to its token; can be aborted.
pub async fn hang(_: TaskCx) {
    std::future::pending().await
}

/// Does nothing until its token fires, and then ends.
pub async fn listen(cx: TaskCx) {
    cx.cancelled().await;
}

/// Waits for nothing in particular until somebody is in a hurry, and then ends.
pub async fn idle(cx: TaskCx) {
    cx.hurried().await;
}

/// Fails at once.
///
/// # Errors
///
/// Always.
pub async fn fail(_: TaskCx) -> Result<(), &'static str> {
    Err("it was made to fail")
}

/// Panics at once.
///
/// # Panics
///
/// Always.
#[expect(clippy::panic, reason = "that is what it is for")]
pub async fn panic(_: TaskCx) {
    panic!("it was made to panic")
}

/// Blocks its thread for ever. As an async task it takes a worker thread with it.
pub fn block(_: TaskCx) {
    loop {
        std::thread::park();
    }
}
