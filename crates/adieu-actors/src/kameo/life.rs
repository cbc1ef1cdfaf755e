//! Runs an actor of kameo as a task, from its start until after its stop hook.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::kameo::Actor;
use ::kameo::actor::WeakActorRef;
use ::kameo::error::{ActorStopReason, HookError, PanicError};
use pin_project_lite::pin_project;

use super::node::KameoNode;
use crate::node::Ended;
use crate::record::{EndGuard, poll_as};

pin_project! {
    /// The task of an actor.
    struct Life<A: Actor, F> {
        #[pin]
        run: F,
        // The last field: it announces that all others were dropped.
        end: EndGuard<KameoNode<A>>,
    }
}

/// Spawns the task of an actor.
pub(super) fn spawn<A, F>(node: &Arc<KameoNode<A>>, run: F)
where
    A: Actor,
    F: Future<Output = Result<(A, ActorStopReason), PanicError>> + Send + 'static,
{
    let life = Life { run, end: EndGuard::new(Arc::clone(node)) };
    #[expect(clippy::disallowed_methods, reason = "an actor is a task; its system joins it")]
    let task = tokio::spawn(life);
    node.set_task(task.abort_handle());
}

// === impl Life ===

impl<A, F> Future for Life<A, F>
where
    A: Actor,
    F: Future<Output = Result<(A, ActorStopReason), PanicError>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let node = this.end.node();
        let ended = ready!(node.count_poll(|| poll_as(node, || this.run.poll(cx))));
        node.set_ending(ended_of(node.actor(), ended.map(|(_, reason)| reason)));
        Poll::Ready(())
    }
}

/// Returns how an actor ended, from the result of its task.
fn ended_of<A: Actor>(
    actor: &WeakActorRef<A>,
    ended: Result<ActorStopReason, PanicError>,
) -> Ended {
    match ended {
        Err(error) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::Killed) => Ended::Killed,
        Ok(ActorStopReason::Panicked(error)) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::Normal | ActorStopReason::SupervisorRestart) => {
            let hook = actor.with_shutdown_result(|ended| ended.map(drop).map_err(text));
            match hook {
                Some(Err(error)) => Ended::HookFailed { error },
                Some(Ok(())) | None => Ended::Stopped,
            }
        }
        // A linked actor ended. Further reasons exist only with kameo's feature `remote`.
        Ok(other) => Ended::Failed { error: other.to_string().into() },
    }
}

/// Returns the text of an error in a hook.
pub(super) fn text<E: fmt::Debug>(error: HookError<&E>) -> Arc<str> {
    match error {
        HookError::Panicked(panic) => panic.to_string().into(),
        HookError::Error(error) => format!("{error:?}").into(),
    }
}
