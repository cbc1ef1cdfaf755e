//! The actor that ractor runs: the user's actor, with the hooks that a drain needs.

mod handling;
mod stopping;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use futures_util::future::{BoxFuture, Either, FutureExt, join_all};
use pin_project_lite::pin_project;

use super::node::RactorNode;
use crate::node::Ended;
use crate::panics::panic_text;
use crate::record::{EndGuard, poll_as};
use crate::system::ActorSystem;
use crate::timeouts::Timeouts;
use handling::Handling;
use stopping::Stopping;

/// The actor that ractor runs. To ractor and senders it looks like the user's actor.
pub(super) struct Wrapper<A> {
    actor: A,
    // The last field: it announces that all others were dropped.
    end: EndGuard<RactorNode>,
}

pin_project! {
    /// Runs a future as the code of an actor.
    ///
    /// Written by hand, because every actor reserves space for it.
    struct Scoped<'a, F> {
        #[pin]
        work: F,
        node: &'a Arc<RactorNode>,
    }
}

// === impl Wrapper ===

impl<A> Wrapper<A> {
    pub(super) fn new(actor: A, node: Arc<RactorNode>) -> Self {
        Self { actor, end: EndGuard::new(node) }
    }

    #[inline]
    pub(super) fn node(&self) -> &Arc<RactorNode> {
        self.end.node()
    }

    pub(super) fn set_ending(&self, ended: Ended) {
        self.node().record().ending.set(ended);
    }

    /// Notes an error as the ending of the actor. Returns the result unchanged.
    pub(super) fn note_failure<T>(
        &self,
        result: Result<T, ActorProcessingErr>,
    ) -> Result<T, ActorProcessingErr> {
        if let Err(error) = &result {
            self.set_ending(Ended::Failed { error: error.to_string().into() });
        }
        result
    }

    /// Notes an error or a caught panic as the ending of the actor. Resumes the panic.
    fn resume_panic<T>(
        &self,
        result: std::thread::Result<Result<T, ActorProcessingErr>>,
    ) -> Result<T, ActorProcessingErr> {
        match result {
            Ok(result) => self.note_failure(result),
            Err(panic) => {
                self.set_ending(Ended::Failed { error: panic_text(&*panic).into() });
                resume_unwind(panic)
            }
        }
    }

    /// Stops the children of an actor that is about to end. Returns `None` if there is nothing to
    /// wait for, which is the usual case.
    pub(super) fn stop_children(&self, cell: &ActorCell) -> Option<BoxFuture<'_, ()>> {
        let record = self.node().record();
        // The user may have linked children without adieu. ractor would kill them.
        if record.admission.is_closed() && cell.get_children().is_empty() {
            return None;
        }
        let cell = cell.clone();
        Some(Box::pin(async move {
            ActorSystem::end_children(record).await;
            drain_linked(cell.get_children()).await;
        }))
    }

    /// Runs `work` as the code of this actor.
    fn scope<F: Future>(&self, work: F) -> Scoped<'_, F> {
        Scoped { work, node: self.node() }
    }
}

/// Drains linked actors, children first.
async fn drain_linked(linked: Vec<ActorCell>) {
    let draining = linked.into_iter().map(|actor| async move {
        Box::pin(drain_linked(actor.get_children())).await;
        // An error means that it has stopped already, or does not stop in time. In the second case
        // ractor kills it when its parent has stopped.
        let _ = actor.drain_and_wait(Some(Timeouts::STATELESS)).await;
    });
    join_all(draining).await;
}

impl<A: Actor> Actor for Wrapper<A> {
    type Msg = A::Msg;
    type State = A::State;
    type Arguments = A::Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        args: A::Arguments,
    ) -> Result<A::State, ActorProcessingErr> {
        self.node().set_cell(myself.get_cell()); // From now on the actor can be killed.
        let starting = AssertUnwindSafe(self.actor.pre_start(myself, args)).catch_unwind();
        self.resume_panic(self.scope(starting).await)
    }

    async fn post_start(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let starting = AssertUnwindSafe(self.actor.post_start(myself, state)).catch_unwind();
        self.resume_panic(self.scope(starting).await)
    }

    fn post_stop(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut A::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        let children = self.stop_children(&myself);
        let stop = move || Stopping::start(self, || self.actor.post_stop(myself, state));
        match children {
            None => Either::Left(stop()),
            Some(children) => Either::Right(Box::pin(async move {
                children.await;
                stop().await
            })),
        }
    }

    fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        self.node().handler_begins();
        let work = self.actor.handle(myself, message, state);
        Handling::new(self, work, std::any::type_name::<A::Msg>())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        message: SupervisionEvent,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        // The event may contain a reference to a child, through which messages cannot be seen.
        self.node().record().note_work();
        // Boxed: it is rare, and otherwise every actor would reserve space for it.
        let work = Box::pin(async move {
            let cell = myself.get_cell();
            let handled = self.actor.handle_supervisor_evt(myself, message, state);
            let handled = AssertUnwindSafe(handled).catch_unwind();
            let handled = self.scope(handled).await;
            let has_failed = !matches!(handled, Ok(Ok(())));
            if has_failed && let Some(children) = self.stop_children(&cell) {
                children.await; // Otherwise ractor would kill them.
            }
            handled
        });
        self.resume_panic(work.await)
    }
}

// === impl Scoped ===

impl<F: Future> Future for Scoped<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        poll_as(this.node, || this.work.poll(cx))
    }
}
