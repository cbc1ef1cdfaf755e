//! Something that can be drained: an actor, a pool, a server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use tokio::task::coop::unconstrained;

use crate::path::NodePath;

/// Something that can be drained, with or without others beneath it.
///
/// Implemented for the actors of kameo and ractor, and by you for what else should be drained in
/// its place in the tree: a pool, a server, an actor of your own making. Give it to
/// [`ActorSystem::register`](crate::ActorSystem::register).
///
/// A node is drained like this: if it has others beneath it, it is asked to [settle](Node::settle),
/// so that what it still wants of them is said; then those are drained; then it is given the pill,
/// [`drain`](Node::drain), and has ended when [`terminated`](Node::terminated) says so. At the
/// deadline it is [killed](Node::kill).
pub trait Node: Send + Sync + 'static {
    /// Where it is in the tree.
    fn path(&self) -> &NodePath;

    /// Those beneath it that the system has not been told of. Those that were registered or
    /// spawned through the system it knows.
    fn children(&self) -> Vec<Arc<dyn Node>> {
        Vec::new()
    }

    /// Works off what has come so far, and resolves when that is done, or when it has terminated.
    /// It may go on taking more. Asked only of nodes with others beneath them.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The poison pill: takes no more, works off what has come, runs its stop hook, ends.
    ///
    /// Resolves when the pill has been taken in; it is never lost, also not to a full mailbox.
    /// A second pill does nothing, and one that is dropped while it finds no room is no loss.
    fn drain(&self) -> BoxFuture<'_, ()>;

    /// The pill, if there is room for it now. False if there is none; then it is
    /// [`drain`](Node::drain)ed.
    fn try_drain(&self) -> bool {
        unconstrained(self.drain()).now_or_never().is_some()
    }

    /// Ends it now: what it is doing is dropped, and what has come goes to the dead letters. The
    /// stop hook still runs where that is possible.
    ///
    /// Called again if that did not help within half of the grace: then by all means there are.
    fn kill(&self);

    /// Resolves when it has fully terminated: after its stop hook, not when its mailbox closed.
    /// At once if it has terminated already. May be awaited by several at a time.
    fn terminated(&self) -> BoxFuture<'_, Ended>;

    /// How it ended, if it has fully terminated.
    fn has_terminated(&self) -> Option<Ended> {
        unconstrained(self.terminated()).now_or_never()
    }

    /// How much has come and is not worked off. None if that cannot be known.
    fn queued(&self) -> Option<usize>;

    /// How many messages have been worked off so far. None if nobody counts.
    fn handled(&self) -> Option<u64> {
        None
    }

    /// How many messages that had come were not worked off. None if that cannot be known.
    fn dead_letters(&self) -> Option<u64> {
        None
    }

    /// Resolves when it has nothing to do, with a number that is another one if it has worked
    /// since it was last asked.
    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut pause = Duration::from_millis(1);
            while self.queued().is_some_and(|queued| queued > 0) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(25));
            }
            self.handled().unwrap_or_default()
        })
    }
}

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ended {
    /// By itself or by the pill, its stop hook included.
    Stopped,
    /// A handler or its start failed or panicked.
    Failed {
        /// What it said.
        error: Arc<str>,
    },
    /// It stopped, but its stop hook failed or panicked.
    HookFailed {
        /// What it said.
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

/// Asks a node something. None if it panics: it may be a user's.
pub(crate) fn caught<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).ok()
}
