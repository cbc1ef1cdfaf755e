//! Waiting for an actor to terminate as a task of the shutdown.

use std::fmt;
use std::sync::Arc;

use adieu_core::{AddTaskError, Shutdown, TaskHandle, TaskSpec};
use futures_util::future::BoxFuture;

use crate::node::Node;

/// An actor whose end a shutdown waits for, and what it is told before.
#[must_use = "it does nothing until it is added to a phase"]
pub struct Termination {
    node: Arc<dyn Node>,
    tell: Option<BoxFuture<'static, ()>>,
}

/// What can be waited for: an actor of kameo or ractor, or a node of your own.
pub trait IntoTermination {
    /// The end of this actor, without telling it anything.
    fn into_termination(self) -> Termination;
}

/// Actors in the phases of a shutdown.
pub trait ActorTasks {
    /// Adds a task to this phase that is done when the actor has fully terminated, after its stop
    /// hook. At once for one that has.
    ///
    /// The same actor may be in several tasks and phases. The actor is told nothing, unless a
    /// [stop message](Termination::telling) is given: it must be about to stop by other means.
    ///
    /// # Errors
    ///
    /// As [`Shutdown::add_task`].
    fn add_actor_termination_task(
        &self,
        phase: impl AsRef<str>,
        name: impl Into<Arc<str>>,
        actor: impl IntoTermination,
    ) -> Result<TaskHandle, AddTaskError>;
}

// === impl Termination ===

impl Termination {
    /// The end of a node.
    pub fn of(node: Arc<dyn Node>) -> Self {
        Self { node, tell: None }
    }

    /// Does this first, when the phase has come: sends the actor the message on which it stops.
    pub fn telling(mut self, tell: impl Future<Output = ()> + Send + 'static) -> Self {
        self.tell = Some(Box::pin(tell));
        self
    }
}

impl fmt::Debug for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Termination").field(self.node.path()).finish()
    }
}

impl IntoTermination for Termination {
    fn into_termination(self) -> Termination {
        self
    }
}

impl IntoTermination for Arc<dyn Node> {
    fn into_termination(self) -> Termination {
        Termination::of(self)
    }
}

impl ActorTasks for Shutdown {
    fn add_actor_termination_task(
        &self,
        phase: impl AsRef<str>,
        name: impl Into<Arc<str>>,
        actor: impl IntoTermination,
    ) -> Result<TaskHandle, AddTaskError> {
        let Termination { node, tell } = actor.into_termination();
        let path = node.path().clone();
        let task = TaskSpec::new(name.into()).describe(move || path.to_string());
        self.add_task(phase, task, async move |cx| {
            if let Some(tell) = tell {
                tokio::select! {
                    () = tell => {}
                    _ = node.terminated() => {} // A message that it has no room for is not waited for.
                }
            }
            tokio::select! {
                biased;
                _ = node.terminated() => Ok(()),
                () = cx.cancelled() => Err(format!("{} has not terminated", node.path())),
            }
        })
    }
}
