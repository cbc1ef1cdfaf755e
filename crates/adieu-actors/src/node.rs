//! Something that can be drained: an actor, a pool, a server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use futures_util::future::BoxFuture;
use futures_util::future::FutureExt;
use serde::Serialize;
use tokio::task::coop::unconstrained;

use crate::path::NodePath;

/// Something that can be drained, with or without children.
///
/// Implemented for the actors of kameo and ractor and for [plain tasks](crate::task), and by you for
/// what else should be drained in its place in the tree: a pool, a server, an actor of your own
/// making. Give it to [`ActorSystem::register`](crate::ActorSystem::register).
///
/// A drain first waits until no node of the tree has anything to do ([`quiet`](Node::quiet),
/// [`idle`](Node::idle)); meanwhile all of them accept messages from each other. Then nodes are
/// stopped, children first. A node with children is asked to [settle](Node::settle); its children are
/// drained; then it is told to stop ([`drain`](Node::drain)), and has ended when
/// [`terminated`](Node::terminated) resolves. At the deadline it is [killed](Node::kill).
pub trait Node: Send + Sync + 'static {
    /// Returns where the node is in the tree.
    fn path(&self) -> &NodePath;

    /// Returns children that the system does not know of. It knows those that were registered or
    /// spawned through it.
    fn children(&self) -> Vec<Arc<dyn Node>> {
        Vec::new()
    }

    /// Called when a drain of this node begins. From now on it should accept messages only from
    /// nodes that are being drained, too. May be called more than once.
    fn begin_drain(&self) {}

    /// Processes what has been accepted so far, and resolves when that is done, or when the node has
    /// terminated. It may go on accepting messages.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Tells the node to stop: it accepts no more, processes what it has accepted, runs its stop
    /// hook, and ends.
    ///
    /// Resolves when the request has been accepted; it is never lost, also not to a full mailbox.
    /// A second request does nothing, and one that is dropped while it finds no room is no loss.
    fn drain(&self) -> BoxFuture<'_, ()>;

    /// Tells the node to stop, if there is room for that now. False if there is none; then
    /// [`drain`](Node::drain) is called.
    fn try_drain(&self) -> bool {
        unconstrained(self.drain()).now_or_never().is_some()
    }

    /// Ends the node now: what it is doing is dropped, and what it has accepted becomes dead
    /// letters. The stop hook still runs where that is possible.
    ///
    /// Called again if that did not help within half of the grace: then by all means there are.
    fn kill(&self);

    /// Resolves when the node has fully terminated: after its stop hook, not when its mailbox
    /// closed. At once if it has terminated already. Several may await it at a time.
    fn terminated(&self) -> BoxFuture<'_, Ended>;

    /// Returns how the node ended, if it has fully terminated.
    fn has_terminated(&self) -> Option<Ended> {
        unconstrained(self.terminated()).now_or_never()
    }

    /// Returns how many messages have been accepted and are not being processed yet, or `None` if
    /// that cannot be known.
    fn queued(&self) -> Option<usize>;

    /// Returns how many messages have been processed so far, or `None` if that is not counted.
    fn handled(&self) -> Option<u64> {
        None
    }

    /// Returns how many messages were refused during a drain or accepted and never processed, or
    /// `None` if that cannot be known.
    fn dead_letters(&self) -> Option<u64> {
        None
    }

    /// Returns a number that changes with each message that is processed, if the node certainly has
    /// nothing to do. `None` if it has, or if only [`idle`](Node::idle) can tell.
    fn quiet(&self) -> Option<u64> {
        None
    }

    /// Resolves when the node has nothing to do, with a number that changes whenever the node has
    /// worked since it was last asked.
    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut pause = Duration::from_millis(1);
            while self.queued().is_some_and(|queued| queued > 0) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(crate::quiet::PAUSE);
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
    /// By itself or because it was told to stop, its stop hook included.
    Stopped,
    /// A handler or its start failed or panicked.
    Failed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// It stopped, but its stop hook failed or panicked.
    HookFailed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// It was killed.
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

/// Asks a node something. `None` if it panics: its implementation may be a user's.
pub(crate) fn caught<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).ok()
}

/// What a node had to do, and had done, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) queued: Option<usize>,
    pub(crate) handled: Option<u64>,
}

// === impl Counts ===

impl Counts {
    pub(crate) fn of(node: &dyn Node) -> Self {
        let counts = caught(|| (node.queued(), node.handled()));
        let (queued, handled) = counts.unwrap_or_default();
        Self { queued, handled }
    }

    /// Of a node that had nothing to do, and had processed this many.
    pub(crate) fn before_any_of(handled: u64) -> Self {
        Self { queued: Some(0), handled: Some(handled) }
    }
}
