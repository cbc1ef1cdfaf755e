//! Waits until no node has work.
//!
//! A message that is processed during a drain may cause further messages, to any node of the tree.
//! So no node is stopped before all are quiet: each was found idle, and none has worked while the
//! others were checked.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

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

/// The nodes and queues whose work a drain waits for.
#[derive(Default)]
pub(crate) struct Activity {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) queues: Queues,
}

/// The queues in front of worker threads: how many messages were ever sent to them, and whether any
/// of these messages is unprocessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) sent: u64,
    pub(crate) is_busy: bool,
}

// === impl Activity ===

impl From<Vec<Arc<dyn Node>>> for Activity {
    fn from(nodes: Vec<Arc<dyn Node>>) -> Self {
        Self { nodes, queues: Queues::default() }
    }
}

/// Waits until all of these nodes and queues are quiet. `activity` is called for each round, because
/// nodes may join. The counters of nodes with work are added to `found`, even if this future is
/// dropped.
pub(crate) async fn until_quiet(activity: impl Fn() -> Activity, found: &mut Found) {
    let began = Instant::now();
    let mut before: Vec<(usize, WorkSnapshot)> = Vec::new();
    let mut queues_before = None;
    loop {
        let Activity { nodes, queues } = activity();
        let mut now: Vec<_> = nodes.iter().map(|node| (address(node), check(node))).collect();
        for ((address, number), node) in now.iter().zip(&nodes) {
            if number.is_none() {
                found.entry(*address).or_insert_with(|| Counts::of(&**node));
            }
        }
        let busy = now.iter_mut().zip(&nodes).filter(|((_, number), _)| number.is_none());
        join_all(busy.map(async |((_, number), node)| *number = Some(until_idle(node).await)))
            .await;
        let now: Vec<_> =
            now.into_iter().filter_map(|(address, number)| Some((address, number?))).collect();
        let are_queues_same = !queues.is_busy && queues_before == Some(queues);
        let mut is_same = are_queues_same && before.len() == now.len();
        for ((address, number), (at, later)) in before.iter().zip(&now) {
            is_same &= address == at;
            // A node that has ended no longer works.
            if number != later && *later != WorkSnapshot::Ended {
                is_same = false;
                if let WorkSnapshot::Quiet(number) = number {
                    found.entry(*address).or_insert(Counts::idle(*number));
                }
            }
        }
        if is_same {
            return;
        }
        (before, queues_before) = (now, Some(queues));
        tokio::time::sleep(pause_after(began)).await;
    }
}

/// Waits until a node is quiet or has ended, by checking it now and then. Returns the number of a quiet
/// node.
pub(crate) async fn poll_until_quiet(node: &impl Node) -> Option<u64> {
    let began = Instant::now();
    while node.has_terminated().is_none() {
        if let Some(number) = node.quiet() {
            return Some(number);
        }
        tokio::time::sleep(pause_after(began)).await;
    }
    None
}

/// How long a drain waits for senders of messages that nodes which have ended will refuse.
const LAST_SENDERS: Duration = Duration::from_millis(100);

/// Waits until no send to these ended nodes is in progress. Such a message will be refused, and the
/// report should count it. The wait is bounded, because the sending task may never be polled.
pub(crate) async fn until_sent<'a>(nodes: impl Iterator<Item = &'a Arc<dyn Node>>) {
    let is_sent_to = |node: &&Arc<dyn Node>| {
        caught(|| node.has_work() && node.has_terminated().is_some()).unwrap_or(false)
    };
    let mut remaining: Vec<_> = nodes.filter(is_sent_to).collect();
    let began = Instant::now();
    while !remaining.is_empty() && began.elapsed() < LAST_SENDERS {
        tokio::time::sleep(pause_after(began)).await;
        remaining.retain(is_sent_to);
    }
}

/// A snapshot of a node's work counter. If two snapshots of the same variant are equal, the node
/// has not worked in between. Snapshots of different variants are never equal, because
/// [`Node::idle`] and [`Node::quiet`] may count differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkSnapshot {
    Quiet(u64),
    Idle(u64),
    Ended,
}

/// Returns the number of a node that is quiet, or `None` if it has work. A node that panics counts as
/// quiet.
fn check(node: &Arc<dyn Node>) -> Option<WorkSnapshot> {
    if caught(|| node.has_terminated().is_some()) == Some(true) {
        return Some(WorkSnapshot::Ended);
    }
    caught(|| node.quiet()).unwrap_or(Some(0)).map(WorkSnapshot::Quiet)
}

/// Waits until the node is idle, has ended or panics. Returns its number.
async fn until_idle(node: &Arc<dyn Node>) -> WorkSnapshot {
    let idle = async {
        tokio::select! {
            biased;
            number = node.idle() => WorkSnapshot::Idle(number),
            _ = node.terminated() => WorkSnapshot::Ended,
        }
    };
    AssertUnwindSafe(idle).catch_unwind().await.unwrap_or(WorkSnapshot::Idle(0))
}
