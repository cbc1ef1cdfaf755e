//! Stops siblings in batches.
//!
//! There may be 100,000 of them, and the loops here are most of the cost of a drain. Being woken by
//! each node costs more than stopping it. So stop messages are sent in batches, and nodes are checked
//! for completion in bulk. While the nodes stop, nothing here allocates: they free memory at the same
//! time, and would contend for the allocator.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{Event, Work, panicked};
use crate::counts::{After, Counts};
use crate::machine::Id;
use crate::node::Node;
use crate::panics::caught;
use crate::path::NodePath;
use crate::report::NodeReport;
use crate::roster::Address;

/// How many stop messages are sent before other tasks run. It is the capacity of the queue of a
/// tokio worker: the nodes run while their memory is cached, and other workers steal the rest.
const BATCH: usize = 256;

/// How many nodes are read together before they are stopped, so that their cache misses overlap.
const PREFETCH: usize = 16;

/// A node that was sent a stop message.
struct Stopping {
    id: Id,
    path: Option<NodePath>,
    before: Counts,
}

/// Nodes that were observed to have ended, and were not reported to the drain yet.
#[derive(Default)]
struct EndedNodes {
    ids: Vec<Id>,
    reports: Vec<NodeReport>,
    /// Scratch space of `collect_ended`.
    checks: Vec<Option<After>>,
}

// === impl EndedNodes ===

impl EndedNodes {
    fn with_capacity(nodes: usize) -> Self {
        let checks = Vec::with_capacity(BATCH.min(nodes));
        Self { ids: Vec::with_capacity(nodes), reports: Vec::with_capacity(nodes), checks }
    }
}

// === impl Work ===

impl Work {
    /// Sends all of them a stop message, and reports the nodes that have ended: once at the end, or
    /// now and then if that takes long.
    pub(super) async fn stop(
        self,
        siblings: Vec<Range<Id>>,
        addresses: Vec<Option<Address>>,
        found: HashMap<Id, Counts>,
    ) {
        let mut deferred = FuturesUnordered::new();
        let many = addresses.len();
        let (mut left, mut ended) = (Vec::with_capacity(many), EndedNodes::with_capacity(many));
        let mut batch = Vec::with_capacity(BATCH.min(many));
        let mut previous = Vec::with_capacity(if many > BATCH { BATCH } else { 0 });
        let mut next = siblings.into_iter().flatten().zip(addresses);
        loop {
            let first = batch.len();
            batch.extend(next.by_ref().take(PREFETCH).map(|(id, address)| {
                let found = found.get(&id).copied();
                let before = found.unwrap_or_else(|| Counts::of(&*self.nodes[id as usize]));
                Stopping { id, path: address.map(|address| address.path), before }
            }));
            for Stopping { id, .. } in &batch[first..] {
                let node = &*self.nodes[*id as usize];
                if caught(|| node.try_drain()) == Some(false) {
                    deferred.push(send_stop(node));
                }
            }
            if batch.len() == first {
                break;
            }
            if batch.len() >= BATCH {
                // Batch n-1 is checked for completion only after batch n was sent, so that the other
                // workers stay busy.
                self.collect_ended(&mut previous, &mut ended);
                left.append(&mut previous);
                std::mem::swap(&mut previous, &mut batch);
                tokio::task::yield_now().await;
            }
        }
        left.append(&mut previous);
        left.append(&mut batch);
        self.collect_ended(&mut left, &mut ended);
        let mut pause = Duration::from_millis(10);
        // Await the last node first: when it has ended, most others have. Then await the one before
        // it that has not ended. So the number of checks does not grow with the square of the nodes.
        let mut last = left.len();
        while let Some(stopping) = last.checked_sub(1).and_then(|last| left.get(last)) {
            if self.check(stopping).is_some() {
                last -= 1;
                continue;
            }
            let node = &self.nodes[stopping.id as usize];
            let terminated = async { node.terminated().await };
            let mut terminated = pin!(AssertUnwindSafe(terminated).catch_unwind());
            let mut paused = pin!(tokio::time::sleep(pause));
            let mut is_awaited = true;
            let takes_long = loop {
                tokio::select! {
                    biased;
                    Some(()) = deferred.next() => {}
                    _ = &mut terminated, if is_awaited => match self.check(stopping) {
                        Some(_) => break false,
                        // `terminated` and `has_terminated` contradict each other. Check again after
                        // the pause.
                        None => is_awaited = false,
                    },
                    () = &mut paused => break true,
                }
            };
            if takes_long {
                pause = (pause * 2).min(Duration::from_millis(100));
                self.collect_ended(&mut left, &mut ended);
                self.report_ended(std::mem::take(&mut ended));
                last = left.len();
            }
        }
        self.collect_ended(&mut left, &mut ended);
        self.report_ended(ended);
    }

    /// Moves the nodes that have ended from `stopping` to `ended`.
    fn collect_ended(&self, stopping: &mut Vec<Stopping>, ended: &mut EndedNodes) {
        let elapsed = self.began.elapsed();
        // Read all nodes first, and nothing else, so that their cache misses overlap.
        ended.checks.extend(stopping.iter().map(|stopping| self.check(stopping)));
        let mut checks = ended.checks.drain(..);
        stopping.retain_mut(|stopping| {
            let Some(after) = checks.next().flatten() else { return true };
            let path = || self.nodes[stopping.id as usize].path().clone();
            let path = stopping.path.take().unwrap_or_else(path);
            ended.ids.push(stopping.id);
            ended.reports.push(stopping.before.report(path, after, elapsed));
            false
        });
    }

    /// Returns how a node ended, or `None` if it has not ended.
    fn check(&self, stopping: &Stopping) -> Option<After> {
        let node = &*self.nodes[stopping.id as usize];
        let ended = caught(|| node.has_terminated()).unwrap_or_else(|| Some(panicked()));
        ended.map(|ended| After::of(node, ended))
    }

    fn report_ended(&self, EndedNodes { ids, reports, .. }: EndedNodes) {
        if !ids.is_empty() {
            let _ = self.events.send(Event::Ended(ids, reports)); // Fails only if the drain was dropped.
        }
    }
}

/// Sends a stop message to a node whose mailbox is full. Gives up when the node has ended.
async fn send_stop(node: &dyn Node) {
    let sent = async {
        tokio::select! {
            biased;
            () = node.drain() => {}
            _ = node.terminated() => {}
        }
    };
    let _ = AssertUnwindSafe(sent).catch_unwind().await;
}
