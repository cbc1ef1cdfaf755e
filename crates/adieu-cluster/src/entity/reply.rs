//! Returns one outcome to its ask within this process.
//!
//! Like a oneshot channel, except that the deadlines of a shard can also end it. So an ask needs no
//! timer of its own, which would cost more than the rest of an ask on the same node.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use adieu_core::adapter::lock;

use crate::message::{AskError, Unknown};

/// The slot for the outcome of an ask.
pub(crate) struct Outlet<R> {
    state: Mutex<State<R>>,
}

enum State<R> {
    Waiting(Option<Waker>),
    Done(Result<R, AskError>),
    Taken,
}

/// Ends an ask. If it is dropped, the ask ends without a reply.
pub(crate) struct ReplySender<R>(Option<Arc<Outlet<R>>>);

/// Waits for the end of an ask.
pub(crate) struct ReplyReceiver<R>(Arc<Outlet<R>>);

/// Returns both ends.
pub(crate) fn channel<R>() -> (ReplySender<R>, ReplyReceiver<R>) {
    let outlet = Arc::new(Outlet { state: Mutex::new(State::Waiting(None)) });
    (ReplySender(Some(Arc::clone(&outlet))), ReplyReceiver(outlet))
}

// === impl Outlet ===

impl<R> Outlet<R> {
    /// Ends the ask, if it has not ended.
    pub(super) fn finish(&self, outcome: Result<R, AskError>) {
        let waker = {
            let mut state = lock(&self.state);
            match &mut *state {
                State::Waiting(waker) => {
                    let waker = waker.take();
                    *state = State::Done(outcome);
                    waker
                }
                State::Done(_) | State::Taken => return,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

// === impl ReplySender ===

impl<R> ReplySender<R> {
    pub(crate) fn send(mut self, outcome: Result<R, AskError>) {
        if let Some(outlet) = self.0.take() {
            outlet.finish(outcome);
        }
    }
}

impl<R> Drop for ReplySender<R> {
    fn drop(&mut self) {
        if let Some(outlet) = self.0.take() {
            outlet.finish(Err(Unknown::NoReply.into()));
        }
    }
}

// === impl ReplyReceiver ===

impl<R> ReplyReceiver<R> {
    pub(super) fn outlet(&self) -> Arc<Outlet<R>> {
        Arc::clone(&self.0)
    }
}

impl<R> Future for ReplyReceiver<R> {
    type Output = Result<R, AskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0.state);
        if let State::Waiting(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                waker => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(outcome) => Poll::Ready(outcome),
            State::Waiting(_) | State::Taken => Poll::Pending,
        }
    }
}
