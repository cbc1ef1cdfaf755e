//! Tasks of a shutdown that wait until an actor has terminated.

use std::fmt;
use std::sync::Arc;

use adieu_core::{AddTaskError, Shutdown, TaskHandle, TaskSpec};
use futures_util::future::BoxFuture;

use crate::node::Node;

/// An actor that a task of a shutdown waits for, with an optional stop request.
#[must_use = "it does nothing until it is added to a phase"]
pub struct Termination {
    node: Arc<dyn Node>,
    stop: Option<BoxFuture<'static, ()>>,
}

/// Actors whose termination can be awaited: of kameo or ractor, plain tasks, nodes of your own.
pub trait IntoTermination {
    /// Returns the termination of this actor, without a stop request.
    fn into_termination(self) -> Termination;
}

/// Adds tasks that await actors to the phases of a shutdown.
pub trait ActorTasks {
    /// Adds a task to this phase that completes when the actor has fully terminated, after its stop
    /// hook. If the actor has terminated already, the task completes at once.
    ///
    /// The same actor may be in several tasks and phases. The task does not stop the actor, unless
    /// it has a [stop request](Termination::with_stop): without one, other code must stop it.
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
    /// Returns the termination of a node, without a stop request.
    pub fn of(node: Arc<dyn Node>) -> Self {
        Self { node, stop: None }
    }

    /// Adds a stop request. The task awaits it first, when its phase begins. It should make the actor
    /// stop, for example by sending it a message.
    pub fn with_stop(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Some(Box::pin(stop));
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
        let Termination { node, stop } = actor.into_termination();
        let path = node.path().clone();
        let task = TaskSpec::new(name.into()).describe(move || path.to_string());
        self.add_task(phase, task, async move |cx| {
            if let Some(stop) = stop {
                tokio::select! {
                    () = stop => {}
                    // The request may wait for room in the mailbox of an actor that has ended.
                    _ = node.terminated() => {}
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
