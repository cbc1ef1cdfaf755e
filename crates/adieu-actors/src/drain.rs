//! Drains a tree: carries out the effects that the machine requests, and awaits their completion.

mod batch;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::countdown::Countdown;
use crate::counts::{After, Counts};
use crate::dead_letters::DeadLetters;
use crate::gather::Gathered;
use crate::machine::{Effect, Id, Machine, Urgency};
use crate::node::{Ended, Node};
use crate::panics::caught;
use crate::path::NodePath;
use crate::quiet::{Found, address};
use crate::report::{DrainReport, NodeEnding, NodeReport};
use crate::roster::{Address, Group};

/// The deadline, the clock and the dead letters of a drain.
#[derive(Clone, Copy)]
pub(crate) struct DrainCx<'a> {
    pub(crate) countdown: &'a Countdown,
    pub(crate) grace: Duration,
    pub(crate) began: Instant,
    pub(crate) letters: &'a DeadLetters,
    /// The number of dead letters when the drain began.
    pub(crate) letters_before: u64,
}

/// The nodes of a drain.
pub(crate) struct Members {
    nodes: Arc<Vec<Arc<dyn Node>>>,
    /// For the reports. Each is taken once: copying very many costs more than stopping the nodes.
    addresses: Vec<Option<Address>>,
    machine: Machine,
    /// The counters of nodes that had work when the drain found them.
    before: HashMap<Id, Counts>,
    settled: HashSet<Id>,
    /// In the order in which nodes were observed to have ended.
    reports: Vec<NodeReport>,
}

enum Event {
    Settled(Id, Counts),
    Ended(Vec<Id>, Vec<NodeReport>),
}

/// The data that each settle and stop needs. The drain awaits all of them.
#[derive(Clone)]
struct Work {
    nodes: Arc<Vec<Arc<dyn Node>>>,
    began: Instant,
    events: mpsc::UnboundedSender<Event>,
}

// === impl Members ===

impl From<Gathered> for Members {
    fn from(Gathered { group: Group { nodes, addresses }, machine }: Gathered) -> Self {
        let (before, settled, reports) = (HashMap::new(), HashSet::new(), Vec::new());
        let addresses = addresses.into_iter().map(Some).collect();
        Self { nodes: Arc::new(nodes), addresses, machine, before, settled, reports }
    }
}

impl Members {
    pub(crate) fn nodes(&self) -> Arc<Vec<Arc<dyn Node>>> {
        Arc::clone(&self.nodes)
    }

    /// Adds the counters of nodes that had work when the drain found them.
    pub(crate) fn found(mut self, found: &Found) -> Self {
        if !found.is_empty() {
            let at = (0..).zip(&*self.nodes).map(|(id, node)| (id, address(node)));
            self.before = at.filter_map(|(id, at)| Some((id, *found.get(&at)?))).collect();
        }
        self
    }

    /// Stops all nodes. Nodes that have not ended at the deadline are killed. Nodes that have not
    /// ended after the grace are abandoned.
    pub(crate) async fn drain(mut self, cx: &DrainCx<'_>) -> DrainReport {
        let DrainCx { countdown, grace, began, letters, letters_before } = *cx;
        if self.nodes.is_empty() {
            return DrainReport { took: began.elapsed(), ..DrainReport::empty() };
        }
        #[expect(clippy::disallowed_methods, reason = "each node sends at most two events")]
        let (events, mut received) = mpsc::unbounded_channel();
        let work = Work { nodes: Arc::clone(&self.nodes), began, events };
        let mut running = FuturesUnordered::new();
        let mut urgency = Urgency::None;
        self.machine.begin();
        loop {
            self.run_effects(&work, &running, urgency);
            if self.machine.all_ended() {
                break;
            }
            let (quarters, next) = match urgency {
                Urgency::None => (0, Some(Urgency::Kill)),
                Urgency::Kill => (2, Some(Urgency::KillAgain)),
                Urgency::KillAgain => (3, Some(Urgency::KillAll)),
                Urgency::KillAll => (4, None),
            };
            tokio::select! {
                biased;
                Some(event) = received.recv() => self.on_event(event),
                Some(()) = running.next() => {}
                () = countdown.grace_passed(grace, quarters) => match next {
                    Some(next) => {
                        urgency = next;
                        self.machine.escalate(next);
                    }
                    None => break,
                },
            }
        }
        drop(running);
        self.report_abandoned(began);
        if letters.count() != letters_before {
            update_dead_letters(&mut self.reports, &self.nodes);
        }
        DrainReport { took: began.elapsed(), nodes: std::mem::take(&mut self.reports) }
    }

    /// Adds reports of the nodes that have not ended.
    fn report_abandoned(&mut self, began: Instant) {
        for (id, node) in (0..).zip(&*self.nodes) {
            if !self.machine.has_ended(id) {
                let elapsed = began.elapsed();
                let before = self.before.get(&id).copied().unwrap_or_else(|| Counts::of(&**node));
                // It may have ended since the last event was received.
                let ended = caught(|| node.has_terminated()).flatten();
                let queued =
                    if ended.is_none() { caught(|| node.queued()).flatten() } else { None };
                let ending = ended.map_or(NodeEnding::Abandoned, NodeEnding::from);
                let after = After::of(&**node, ending);
                let report = before.report(node.path().clone(), after, elapsed);
                self.reports.push(report.with_queued(queued));
            }
        }
    }

    /// Carries out the effects that the machine requests.
    fn run_effects(
        &mut self,
        work: &Work,
        running: &FuturesUnordered<BoxFuture<'static, ()>>,
        urgency: Urgency,
    ) {
        let (mut stops, mut kills) = (Vec::new(), Vec::new());
        for effect in self.machine.take_effects() {
            match effect {
                Effect::Settle(id) => {
                    let before = self.before.get(&id).copied();
                    running.push(Box::pin(work.clone().settle(id, before)));
                }
                Effect::Stop(ids) => stops.push(ids),
                Effect::Kill(id) => kills.push(id),
            }
        }
        // One future for all siblings: their parent waits until the last of them has ended.
        let parent = |ids: &Range<Id>| self.machine.parent(ids.start);
        for siblings in stops.chunk_by(|some, others| parent(some) == parent(others)) {
            let siblings = siblings.to_vec();
            let ids = || siblings.iter().cloned().flatten();
            // Usually the siblings are all nodes. Then the whole list is taken without copying.
            let are_all = matches!(&*siblings, [ids] if ids.len() == self.addresses.len());
            let addresses = if are_all {
                std::mem::take(&mut self.addresses)
            } else {
                ids().map(|id| self.addresses.get_mut(id as usize)?.take()).collect()
            };
            let before = ids().filter_map(|id| Some((id, *self.before.get(&id)?))).collect();
            running.push(Box::pin(work.clone().stop(siblings, addresses, before)));
        }
        if urgency != Urgency::None {
            for id in stops.into_iter().flatten() {
                if caught(|| self.nodes[id as usize].has_work()) == Some(true) {
                    self.machine.has_work(id);
                }
            }
            kills.extend(self.machine.take_effects().into_iter().filter_map(
                |effect| match effect {
                    Effect::Kill(id) => Some(id),
                    Effect::Settle(_) | Effect::Stop(_) => None,
                },
            ));
        }
        for id in kills {
            // A node that panics here is abandoned, as one that cannot be killed.
            caught(|| self.nodes[id as usize].kill());
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Settled(id, before) => {
                self.before.entry(id).or_insert(before);
                self.settled.insert(id);
                self.machine.settled(id);
            }
            Event::Ended(ids, mut reports) => {
                if self.reports.is_empty() {
                    self.reports = reports;
                } else {
                    self.reports.append(&mut reports);
                }
                for id in ids {
                    self.machine.ended(id);
                }
            }
        }
    }
}

/// A drain that is dropped half-way stops the nodes that wait for their children: no other code
/// would.
impl Drop for Members {
    fn drop(&mut self) {
        for (id, node) in (0..).zip(&*self.nodes) {
            // The stop of a node that has settled may have been requested, but not carried out.
            let may_wait = self.settled.contains(&id) && !self.machine.has_ended(id);
            if may_wait || self.machine.is_partway(id) {
                caught(|| node.try_drain());
            }
        }
    }
}

// === impl Work ===

impl Work {
    /// Settles a node.
    async fn settle(self, id: Id, before: Option<Counts>) {
        let node = &*self.nodes[id as usize];
        let before = before.unwrap_or_else(|| Counts::of(node));
        let settling = async {
            tokio::select! {
                biased;
                () = node.settle() => None,
                ended = node.terminated() => Some(ended),
            }
        };
        let settled = AssertUnwindSafe(settling).catch_unwind().await;
        let event = match settled.unwrap_or_else(|_| Some(panicked())) {
            None => Event::Settled(id, before),
            Some(ended) => {
                let (path, elapsed) = (node.path().clone(), self.began.elapsed());
                let report = before.report(path, After::of(node, ended), elapsed);
                Event::Ended(vec![id], vec![report])
            }
        };
        let _ = self.events.send(event); // Fails only if the drain was dropped.
    }
}

/// Updates the dead letters in the reports: a node may have refused messages after it was reported.
pub(crate) fn update_dead_letters(reports: &mut [NodeReport], nodes: &[Arc<dyn Node>]) {
    let count = |node: &Arc<dyn Node>| {
        let letters = caught(|| node.dead_letters()).flatten().filter(|count| *count > 0)?;
        Some((node.path().clone(), letters))
    };
    let letters: HashMap<NodePath, u64> = nodes.iter().filter_map(count).collect();
    for report in reports {
        if let Some(letters) = letters.get(report.path()) {
            report.raise_dead_letters(*letters);
        }
    }
}

fn panicked() -> Ended {
    Ended::Failed { error: "its implementation of `Node` panicked".into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gather::gather;

    /// Counts how often it is stopped.
    struct Stops {
        path: NodePath,
        count: AtomicUsize,
    }

    impl Node for Stops {
        fn path(&self) -> &NodePath {
            &self.path
        }

        fn drain(&self) -> BoxFuture<'_, ()> {
            self.count.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }

        fn kill(&self) {}

        fn terminated(&self) -> BoxFuture<'_, Ended> {
            Box::pin(std::future::pending())
        }

        fn queued(&self) -> Option<usize> {
            None
        }
    }

    #[test]
    fn a_dropped_drain_stops_nodes_that_have_settled() {
        let path = NodePath::user().child("parent").unwrap();
        let new = |path: NodePath| Arc::new(Stops { path, count: AtomicUsize::new(0) });
        let (parent, child) = (new(path.clone()), new(path.child("child").unwrap()));
        let address = Address { path: child.path.clone(), depth: child.path.depth() };
        let nodes: Vec<Arc<dyn Node>> = vec![child];
        let below = Group { nodes, addresses: vec![address] };
        let mut members = Members::from(gather(&path, Some(Arc::clone(&parent) as _), below));
        members.machine.begin();
        members.on_event(Event::Settled(0, Counts::of(&*parent)));
        members.on_event(Event::Ended(vec![1], Vec::new()));
        // The stop of the parent has been requested, and is not carried out.
        assert_eq!(members.machine.take_effects().len(), 3);
        drop(members);
        assert_eq!(parent.count.load(Ordering::Relaxed), 1);
    }
}
