//! A running stop hook of an actor.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::ractor::ActorProcessingErr;
use pin_project_lite::pin_project;

use super::Wrapper;
use crate::node::Ended;
use crate::panics::panic_text;
use crate::record::{poll_as, run_as};

pin_project! {
    /// A running stop hook.
    ///
    /// Written by hand, because it is allocated for each actor that stops: with very many actors, a
    /// few more bytes cost a tenth of the time.
    #[project = StoppingProj]
    pub(super) enum Stopping<'a, A, F> {
        Running { #[pin] work: F, wrapper: &'a Wrapper<A> },
        /// The hook panicked before it returned a future.
        Panicked { panic: Option<Box<dyn Any + Send>> },
    }
}

// === impl Stopping ===

impl<'a, A, F> Stopping<'a, A, F> {
    /// Calls a stop hook as the code of the actor.
    pub(super) fn start(wrapper: &'a Wrapper<A>, hook: impl FnOnce() -> F) -> Self {
        match catch_unwind(AssertUnwindSafe(|| run_as(wrapper.node(), hook))) {
            Ok(work) => Self::Running { work, wrapper },
            Err(panic) => {
                wrapper.set_ending(Ended::HookFailed { error: panic_text(&*panic).into() });
                Self::Panicked { panic: Some(panic) }
            }
        }
    }
}

impl<A, F> Future for Stopping<'_, A, F>
where
    F: Future<Output = Result<(), ActorProcessingErr>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (work, wrapper) = match self.project() {
            StoppingProj::Running { work, wrapper } => (work, wrapper),
            StoppingProj::Panicked { panic } => match panic.take() {
                Some(panic) => resume_unwind(panic),
                None => return Poll::Pending, // It was polled again after it had panicked.
            },
        };
        let work = || poll_as(wrapper.node(), || work.poll(cx));
        let polled = catch_unwind(AssertUnwindSafe(work));
        let ended = match &polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => Ended::Stopped,
            Ok(Poll::Ready(Err(error))) => Ended::HookFailed { error: error.to_string().into() },
            Err(panic) => Ended::HookFailed { error: panic_text(&**panic).into() },
        };
        wrapper.set_ending(ended);
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
