//! One attempt: the call's future, until it ends, panics or runs out of time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::Deadline;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::drain;
use crate::time::{Instant, LONGEST};

/// The context of one attempt, which the call receives.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub(super) number: u32,
    pub(super) deadline: Option<Deadline>,
}

/// How an attempt ended.
pub(super) enum Ended<T> {
    Returned(T),
    TimedOut,
    /// The window of the gate that the call is inside of is over.
    Cut,
    Panicked(Box<dyn Any + Send>),
}

pin_project! {
    /// Polls a call until its limit.
    ///
    /// The timer is made when the call first waits: a call that ends at once pays for none.
    pub(super) struct Attempting<F> {
        #[pin]
        call: F,
        limit: Option<Instant>,
        has_waited: bool,
        #[pin]
        timer: Option<Sleep>,
        #[pin]
        cut: Option<WaitForCancellationFutureOwned>,
    }
}

// === impl Attempt ===

impl Attempt {
    /// Returns the number of this attempt, from one.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the time that the attempt has left, to pass on to the backend. A year if it has no limit.
    ///
    /// If the gate around the call has begun to drain since the attempt began, this is at most what is
    /// left of the drain's window.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let end = self.deadline.into_iter().chain(drain::window_end()).min();
        end.map_or(LONGEST, Deadline::remaining)
    }

    /// Returns when the attempt is dropped. `None` if nothing limits it.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }
}

// === impl Attempting ===

impl<F> Attempting<F> {
    pub(super) fn new(call: F, limit: Option<Instant>) -> Self {
        Self { call, limit, has_waited: false, timer: None, cut: None }
    }
}

impl<F: Future> Future for Attempting<F> {
    type Output = Ended<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Unwind safe: after a panic the call is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| this.call.poll(cx))) {
            Ok(Poll::Ready(output)) => return Poll::Ready(Ended::Returned(output)),
            Err(panic) => return Poll::Ready(Ended::Panicked(panic)),
            Ok(Poll::Pending) => {}
        }
        if !*this.has_waited {
            *this.has_waited = true;
            let limit = this.limit.map(tokio::time::Instant::from_std);
            this.timer.set(limit.map(tokio::time::sleep_until));
            this.cut.set(drain::cut());
        }
        if this.timer.as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready()) {
            return Poll::Ready(Ended::TimedOut);
        }
        if this.cut.as_pin_mut().is_some_and(|cut| cut.poll(cx).is_ready()) {
            return Poll::Ready(Ended::Cut);
        }
        Poll::Pending
    }
}
