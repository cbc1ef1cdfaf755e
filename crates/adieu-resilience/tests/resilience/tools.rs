//! Helpers of the tests.

use std::time::Duration;

use adieu_core::{Config, Shutdown};
use adieu_resilience::{Attempt, CallError, Code, Policy, PolicyBuilder};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

/// A policy named `backend`, and the shutdown that must outlive it.
pub(crate) fn start(build: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> (Policy, Shutdown) {
    let shutdown = shutdown();
    (build(Policy::new("backend")).start(&shutdown).unwrap(), shutdown)
}

/// Returns the code with which a call was refused.
pub(crate) fn code<T: std::fmt::Debug, E: std::fmt::Debug>(
    result: Result<T, CallError<E>>,
) -> Code {
    match result {
        Err(CallError::Refused(refused)) => refused.code(),
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) async fn succeed(_: Attempt) -> Result<(), &'static str> {
    Ok(())
}

pub(crate) async fn fail(_: Attempt) -> Result<(), &'static str> {
    Err("broken")
}

pub(crate) async fn hang(_: Attempt) -> Result<(), &'static str> {
    std::future::pending().await
}

/// Polls a future once.
pub(crate) fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
