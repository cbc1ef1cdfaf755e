//! A node of the tree that can be drained: an actor, a pool, a server.

use std::sync::Arc;
use std::time::Duration;

pub use futures_util::future::BoxFuture;
use futures_util::future::FutureExt;
use serde::Serialize;
use tokio::task::coop::unconstrained;

use crate::backoff::MAX_PAUSE;
use crate::path::NodePath;

/// A node of the tree that can be drained, with or without children.
///
/// Implemented for the actors of kameo and ractor and for [plain tasks](crate::task). Implement it
/// for other things that should be drained in their place in the tree, such as a pool or a server,
/// and pass them to [`ActorSystem::register`](crate::ActorSystem::register).
///
/// # How a node is drained
///
/// 1. The drain waits until no node of the tree has work ([`quiet`](Node::quiet),
///    [`idle`](Node::idle)). Until then all nodes accept messages from each other.
/// 2. Nodes are stopped, children first. A node with children first [settles](Node::settle). Then
///    its children are stopped. When they have ended, the node is stopped itself
///    ([`drain`](Node::drain)).
/// 3. The node has ended when [`terminated`](Node::terminated) resolves.
/// 4. After the deadline, a node that has work is [killed](Node::kill) when its children have ended; at
///    the end of the grace, every node.
pub trait Node: Send + Sync + 'static {
    /// Returns the path of the node in the tree.
    fn path(&self) -> &NodePath;

    /// Returns the children that were neither registered with the system nor spawned through it.
    fn children(&self) -> Vec<Arc<dyn Node>> {
        Vec::new()
    }

    /// Begins a drain of this node. From now on the node should accept messages only from nodes that
    /// are being drained, too. May be called more than once.
    fn begin_drain(&self) {}

    /// Processes all messages that have been accepted so far. Resolves when that is done, or when
    /// the node has terminated. The node may continue to accept messages.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Stops the node: it refuses new messages, processes the messages that it has accepted, runs
    /// its stop hook, and ends.
    ///
    /// Resolves when the request has been accepted, also if the mailbox is full. A second request has no
    /// effect. Once the future has resolved, the request must not be lost. If the future is dropped
    /// earlier, the drain calls this method again.
    fn drain(&self) -> BoxFuture<'_, ()>;

    /// Stops the node as [`drain`](Node::drain) does, if the request can be accepted at once.
    /// Returns false if not; then [`drain`](Node::drain) is called.
    fn try_drain(&self) -> bool {
        unconstrained(self.drain()).now_or_never().is_some()
    }

    /// Ends the node now: the handler that runs is dropped, and accepted messages become dead
    /// letters. The stop hook still runs if that is possible.
    ///
    /// Called a second time if the node has not ended within half of the grace. Then the node should
    /// be ended without its stop hook.
    fn kill(&self);

    /// Resolves when the node has fully terminated: after its stop hook, not when its mailbox was
    /// closed. Resolves at once if it has terminated already. May be awaited several times at once.
    fn terminated(&self) -> BoxFuture<'_, Ended>;

    /// Returns how the node ended, or `None` if it has not fully terminated.
    fn has_terminated(&self) -> Option<Ended> {
        unconstrained(self.terminated()).now_or_never()
    }

    /// Returns how many messages have been accepted and are not being processed yet, or `None` if
    /// that is unknown.
    fn queued(&self) -> Option<usize>;

    /// Returns whether the node certainly has work: a message is being sent to it, is queued, or is
    /// being processed. After the deadline, a node that was asked to stop and has work is killed at
    /// once, while other nodes have time for their stop hooks.
    fn has_work(&self) -> bool {
        self.queued().is_some_and(|queued| queued > 0)
    }

    /// Returns how many messages have been processed so far, or `None` if they are not counted.
    fn handled(&self) -> Option<u64> {
        None
    }

    /// Returns how many messages were refused during a drain or accepted and never processed, or
    /// `None` if that is unknown.
    fn dead_letters(&self) -> Option<u64> {
        None
    }

    /// Returns a number that changes with each processed message, if the node certainly has no work.
    /// Returns `None` if it has work, or if only [`idle`](Node::idle) can find out.
    fn quiet(&self) -> Option<u64> {
        None
    }

    /// Resolves when the node has no work, with a number that changes whenever the node has worked
    /// since the previous call.
    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut pause = Duration::from_millis(1);
            while self.queued().is_some_and(|queued| queued > 0) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            self.settle().await;
            self.handled().unwrap_or_default()
        })
    }
}

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ended {
    /// The node stopped, and its stop hook succeeded.
    Stopped,
    /// A handler or the start of the node failed or panicked.
    Failed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// The node stopped, but its stop hook failed or panicked.
    HookFailed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// The node was killed.
    Killed,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::HookFailed { error } => write!(f, "its stop hook failed: {error}"),
            Self::Killed => f.write_str("killed"),
        }
    }
}

/// A node without work, for tests.
#[cfg(test)]
pub(crate) struct TestNode(pub(crate) NodePath);

#[cfg(test)]
impl Node for TestNode {
    fn path(&self) -> &NodePath {
        &self.0
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {}

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(std::future::ready(Ended::Stopped))
    }

    fn queued(&self) -> Option<usize> {
        None
    }
}
