//! Waits until no node has work.
//!
//! A message that is processed during a drain may cause further messages, to any node of the tree.
//! So no node is stopped before all are quiet: each was found idle, and none has worked while the
//! others were checked.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{FutureExt, join_all};
use tokio::time::Instant;

use crate::backoff::pause_after;
use crate::counts::Counts;
use crate::node::Node;
use crate::panics::caught;

/// The counters of nodes when the drain found them with work, by [address]. Nodes that
/// never had work are absent.
pub(crate) type Found = HashMap<usize, Counts>;

/// Returns the address of a node in memory, which identifies it while it exists.
pub(crate) fn address(node: &Arc<dyn Node>) -> usize {
    Arc::as_ptr(node).cast::<()>().addr()
}

/// Waits until all of these nodes are quiet. `nodes` is called for each round, because nodes may
/// join. The counters of nodes with work are added to `found`, even if this future is dropped.
pub(crate) async fn until_quiet(nodes: impl Fn() -> Vec<Arc<dyn Node>>, found: &mut Found) {
    let began = Instant::now();
    let mut before: Vec<(usize, u64)> = Vec::new();
    let mut is_first = true;
    loop {
        let nodes = nodes();
        let mut now: Vec<_> = nodes.iter().map(|node| (address(node), check(node))).collect();
        for ((address, number), node) in now.iter().zip(&nodes) {
            if number.is_none() {
                found.entry(*address).or_insert_with(|| Counts::of(&**node));
            }
        }
        let busy = now.iter_mut().zip(&nodes).filter(|((_, number), _)| number.is_none());
        join_all(busy.map(async |((_, number), node)| *number = Some(until_idle(node).await)))
            .await;
        let now: Vec<_> = now
            .into_iter()
            .map(|(address, number)| (address, number.unwrap_or_default()))
            .collect();
        let mut is_same = !is_first && before.len() == now.len();
        for ((address, number), (at, later)) in before.iter().zip(&now) {
            is_same &= address == at;
            // A node that has ended no longer works.
            if number != later && *later != ENDED {
                is_same = false;
                found.entry(*address).or_insert(Counts::idle(*number));
            }
        }
        if is_same {
            return;
        }
        (before, is_first) = (now, false);
        tokio::time::sleep(pause_after(began)).await;
    }
}

/// Waits until a node is quiet or has ended, by checking it now and then.
pub(crate) async fn poll_until_quiet(node: &impl Node) {
    let began = Instant::now();
    while node.has_terminated().is_none() && node.quiet().is_none() {
        tokio::time::sleep(pause_after(began)).await;
    }
}

/// The number of a node that has ended.
const ENDED: u64 = u64::MAX;

/// Returns the number of a node that is quiet, or `None` if it has work. A node that panics counts as
/// quiet.
fn check(node: &Arc<dyn Node>) -> Option<u64> {
    if caught(|| node.has_terminated().is_some()) == Some(true) {
        return Some(ENDED);
    }
    caught(|| node.quiet()).unwrap_or(Some(0))
}

/// Waits until the node is idle, has ended or panics. Returns its number.
async fn until_idle(node: &Arc<dyn Node>) -> u64 {
    let idle = async {
        tokio::select! {
            biased;
            number = node.idle() => number,
            _ = node.terminated() => ENDED,
        }
    };
    AssertUnwindSafe(idle).catch_unwind().await.unwrap_or_default()
}
