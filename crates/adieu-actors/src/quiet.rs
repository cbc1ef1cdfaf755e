//! Waits until no node has anything to do.
//!
//! A message that is processed during a drain may cause others, to any node of the tree. So nothing
//! is stopped before all are quiet: every node has been found idle, and none has worked while the
//! others were being looked at.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::time::Instant;

use crate::node::{Counts, Node, caught};

/// What nodes had to do when the drain found them, by their [address](address). Nodes that had
/// nothing to do all the time are not here.
pub(crate) type Found = HashMap<usize, Counts>;

/// Where a node is in memory: two nodes at a time are never in the same place.
pub(crate) fn address(node: &Arc<dyn Node>) -> usize {
    Arc::as_ptr(node).cast::<()>().addr()
}

/// Resolves when all of these nodes are quiet. They are listed anew each time, because there may be
/// more by then. What they had to do is noted, also if this is dropped before its end.
pub(crate) async fn until_quiet(nodes: impl Fn() -> Vec<Arc<dyn Node>>, found: &mut Found) {
    let began = Instant::now();
    let mut before: Vec<(usize, u64)> = Vec::new();
    let mut is_first = true;
    loop {
        let nodes = nodes();
        let mut now: Vec<_> = nodes.iter().map(|node| (address(node), look(node))).collect();
        for ((address, number), node) in now.iter().zip(&nodes) {
            if number.is_none() {
                found.entry(*address).or_insert_with(|| Counts::of(&**node));
            }
        }
        let busy = now.iter_mut().zip(&nodes).filter(|((_, number), _)| number.is_none());
        join_all(busy.map(async |((_, number), node)| *number = Some(wait(node).await))).await;
        let now: Vec<_> = now
            .into_iter()
            .map(|(address, number)| (address, number.unwrap_or_default()))
            .collect();
        let mut is_same = !is_first && before.len() == now.len();
        for ((address, number), (at, later)) in before.iter().zip(&now) {
            is_same &= address == at;
            // A node that has ended works no more.
            if number != later && *later != ENDED {
                is_same = false;
                found.entry(*address).or_insert(Counts::before_any_of(*number));
            }
        }
        if is_same {
            return;
        }
        (before, is_first) = (now, false);
        tokio::time::sleep(pause_after(began)).await;
    }
}

/// Returns how long to wait before a node is looked at again. The pauses grow with the time that it
/// takes, so they are never a large part of that.
pub(crate) fn pause_after(began: Instant) -> Duration {
    (began.elapsed() / 16).clamp(Duration::from_millis(1), PAUSE)
}

/// The longest pause before nodes are looked at again.
pub(crate) const PAUSE: Duration = Duration::from_millis(25);

/// The number of a node that has ended.
const ENDED: u64 = u64::MAX;

/// `None` if it has something to do. A node that panics when it is asked is not waited for.
fn look(node: &Arc<dyn Node>) -> Option<u64> {
    if caught(|| node.has_terminated().is_some()) == Some(true) {
        return Some(ENDED);
    }
    caught(|| node.quiet()).unwrap_or(Some(0))
}

/// Waits until the node has nothing to do, or has ended, or panics when it is asked.
async fn wait(node: &Arc<dyn Node>) -> u64 {
    let idle = async {
        tokio::select! {
            biased;
            number = node.idle() => number,
            _ = node.terminated() => ENDED,
        }
    };
    AssertUnwindSafe(idle).catch_unwind().await.unwrap_or_default()
}
