//! How many messages a node processed during a drain: its counters before and after.

use std::time::Duration;

use crate::node::Node;
use crate::panics::caught;
use crate::path::NodePath;
use crate::report::{NodeEnding, NodeReport};

/// The counters of a node when the drain found it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    queued: Option<usize>,
    handled: Option<u64>,
}

/// How a node ended, and its counters then.
pub(crate) struct After {
    ending: NodeEnding,
    handled: Option<u64>,
    dead_letters: Option<u64>,
}

// === impl Counts ===

impl Counts {
    #[inline]
    pub(crate) fn of(node: &dyn Node) -> Self {
        let counts = caught(|| (node.queued(), node.handled()));
        let (queued, handled) = counts.unwrap_or_default();
        Self { queued, handled }
    }

    /// Returns the counters of an idle node that had processed this many messages.
    pub(crate) fn idle(handled: u64) -> Self {
        Self { queued: Some(0), handled: Some(handled) }
    }

    #[inline]
    pub(crate) fn report(self, path: NodePath, after: After, elapsed: Duration) -> NodeReport {
        let After { ending, handled, dead_letters } = after;
        let counted = self.handled.zip(handled).map(|(before, after)| after.saturating_sub(before));
        // Nodes without a `handled` counter: infer it from the queue length minus dead letters. This
        // is not possible if the node did not drain, or if its dead letters are unknown.
        let drained = counted.or_else(|| {
            let queued = self.queued? as u64;
            let is_drained = ending == NodeEnding::Drained;
            is_drained.then(|| Some(queued.saturating_sub(dead_letters?))).flatten()
        });
        NodeReport::new(path, ending, drained, elapsed).with_dead_letters(dead_letters)
    }
}

// === impl After ===

impl After {
    #[inline]
    pub(crate) fn of(node: &dyn Node, ending: impl Into<NodeEnding>) -> Self {
        let counts = caught(|| (node.handled(), node.dead_letters()));
        let (handled, dead_letters) = counts.unwrap_or_default();
        Self { ending: ending.into(), handled, dead_letters }
    }
}
