//! A running handler of an actor.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::ractor::ActorProcessingErr;
use futures_util::future::{BoxFuture, FutureExt};
use pin_project_lite::pin_project;

use super::super::letter::loses_letter;
use super::Wrapper;
use crate::node::Ended;
use crate::panics::panic_text;
use crate::record::poll_as;

pin_project! {
    /// A running handler. If it is dropped before it returns, its message is a dead letter.
    pub(super) struct Handling<'a, A, F> {
        // Dropped first: `drop` then sees whether it contained an unopened letter.
        #[pin]
        work: Option<F>,
        wrapper: &'a Wrapper<A>,
        failing: Option<Box<Failing<'a>>>,
        message: &'static str,
        is_done: bool,
    }

    impl<A, F> PinnedDrop for Handling<'_, A, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // An unopened letter counts itself.
            if !*this.is_done && !loses_letter(|| this.work.set(None)) {
                this.wrapper.node().record().count_interrupted(None, this.message);
            }
        }
    }
}

/// A handler that has failed. The actor ends after its children: otherwise ractor would kill them.
struct Failing<'a> {
    children: BoxFuture<'a, ()>,
    with: Option<Failure>,
}

enum Failure {
    Error(ActorProcessingErr),
    Panic(Box<dyn Any + Send>),
}

// === impl Handling ===

impl<'a, A, F> Handling<'a, A, F> {
    #[inline]
    pub(super) fn new(wrapper: &'a Wrapper<A>, work: F, message: &'static str) -> Self {
        Self { work: Some(work), wrapper, failing: None, message, is_done: false }
    }
}

impl<'a, A, F> Future for Handling<'a, A, F>
where
    F: Future<Output = Result<(), ActorProcessingErr>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let wrapper: &'a Wrapper<A> = this.wrapper;
        if this.failing.is_none() {
            let Some(work) = this.work.as_pin_mut() else { return Poll::Pending };
            let work = || poll_as(wrapper.node(), || work.poll(cx));
            let failure = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(handled)) => {
                    *this.is_done = true;
                    wrapper.node().handler_returned();
                    match wrapper.note_failure(handled) {
                        Ok(()) => return Poll::Ready(Ok(())),
                        Err(error) => Failure::Error(error),
                    }
                }
                Err(panic) => {
                    wrapper.set_ending(Ended::Failed { error: panic_text(&*panic).into() });
                    Failure::Panic(panic)
                }
            };
            let cell = wrapper.node().cell();
            let children = cell.and_then(|cell| wrapper.stop_children(cell));
            let children = children.unwrap_or_else(|| Box::pin(std::future::ready(())));
            *this.failing = Some(Box::new(Failing { children, with: Some(failure) }));
        }
        let Some(failing) = this.failing else { return Poll::Pending };
        ready!(failing.children.poll_unpin(cx));
        match failing.with.take() {
            Some(Failure::Error(error)) => Poll::Ready(Err(error)),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            None => Poll::Pending, // It was polled again after it had failed.
        }
    }
}
