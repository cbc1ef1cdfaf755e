//! How the drain of the process limits a call: its deadline, and whether it may be repeated.

use adieu_core::{Deadline, Pass, Stage, WeakShutdown};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::time::Instant;

/// Whether a call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retries {
    AsDeclared,
    /// The call is inside a gate that drains: it may be repeated once more, after a short pause.
    OnceMore,
    None,
}

/// Returns whether the shutdown has begun.
pub(crate) fn has_begun(shutdown: &WeakShutdown) -> bool {
    shutdown.upgrade().is_some_and(|shutdown| shutdown.stage() != Stage::Up)
}

/// When the call must have ended because its gate drains.
pub(crate) fn deadline(shutdown: &WeakShutdown) -> Option<Instant> {
    // Read the pass first: outside a drain, a call reads nothing else.
    let pass = Pass::current().filter(Pass::is_draining)?;
    // The window begins a little after the gate has closed.
    let end = pass.window_end().or_else(|| shutdown.upgrade()?.deadline())?;
    Some(end.instant().into_std())
}

/// Returns the end of the window of the gate that the calling code is inside of, if it drains.
pub(crate) fn window_end() -> Option<Deadline> {
    Pass::current()?.window_end()
}

/// Returns which retries are permitted to this call now.
pub(crate) fn retries(shutdown: &WeakShutdown) -> Retries {
    match Pass::current() {
        Some(pass) if !pass.is_draining() => Retries::AsDeclared,
        // The source of a job delivers it again, so its retries need not hold up the drain.
        Some(pass) if pass.is_of_loop() => Retries::None,
        Some(pass) if !pass.token().is_cancelled() => Retries::OnceMore,
        Some(_) => Retries::None,
        None if has_begun(shutdown) => Retries::None,
        None => Retries::AsDeclared,
    }
}

/// Waits until the window of the call's gate is over. `None` outside a gate.
pub(crate) fn cut() -> Option<WaitForCancellationFutureOwned> {
    Some(Pass::current()?.token().cancelled_owned())
}

/// Waits until no call may be repeated. Inside a gate, that is when the window of the gate has
/// elapsed. Outside, it is when the shutdown begins.
pub(crate) fn no_retries(shutdown: &WeakShutdown) -> WaitForCancellationFutureOwned {
    cut().unwrap_or_else(|| {
        let token = shutdown.upgrade().map(|shutdown| shutdown.token());
        token.unwrap_or_default().cancelled_owned()
    })
}
