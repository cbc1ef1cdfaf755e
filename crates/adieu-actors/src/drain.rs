//! Drains a tree: does what the machine decides, and joins all that it began.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::Deadline;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::gather::Gathered;
use crate::machine::{Effect, Id, Machine, Pressure};
use crate::node::{Ended, Node, caught};
use crate::path::NodePath;
use crate::report::{DrainReport, NodeEnding, NodeReport};
use crate::roster::{Address, Group};

/// When a drain must be over. Like every deadline it only ever comes nearer.
#[derive(Debug)]
pub(crate) struct Countdown {
    deadline: watch::Sender<Option<Deadline>>,
}

/// What a node had to do, and had done, when it was told.
#[derive(Clone, Copy)]
struct Before {
    queued: Option<usize>,
    handled: Option<u64>,
}

/// How a node ended, and what it had done by then.
struct After {
    ending: NodeEnding,
    handled: Option<u64>,
    dead_letters: Option<u64>,
}

/// Those to be drained.
pub(crate) struct Members {
    nodes: Arc<Vec<Arc<dyn Node>>>,
    /// For the reports, each taken once: to copy very many of them costs more than to stop them.
    addresses: Vec<Option<Address>>,
    machine: Machine,
    /// Of those that have settled.
    before: HashMap<Id, Before>,
    /// In the order in which they were seen to end.
    reports: Vec<NodeReport>,
}

enum Event {
    Settled(Id, Before),
    Ended(Vec<Id>, Vec<NodeReport>),
}

/// What all that is at work needs.
#[derive(Clone)]
struct Work {
    nodes: Arc<Vec<Arc<dyn Node>>>,
    began: Instant,
    says: mpsc::UnboundedSender<Event>,
}

/// One that has been given the pill.
struct Told {
    id: Id,
    path: Option<NodePath>,
    before: Before,
}

/// Those that were seen to have ended, and are not said yet.
#[derive(Default)]
struct Gone {
    ids: Vec<Id>,
    reports: Vec<NodeReport>,
    /// What was seen of those that are being looked at. Only in `look`.
    looks: Vec<Option<After>>,
}

/// After how many pills others get their turn: as many as tokio's workers queue for themselves.
/// They are run while they are at hand, and what is too many for one worker the others take.
const TURN: usize = 256;

/// How many are looked at together before they are told.
const AHEAD: usize = 16;

// === impl Countdown ===

impl Countdown {
    pub(crate) fn new() -> Self {
        Self { deadline: watch::Sender::new(None) }
    }

    pub(crate) fn until(deadline: Deadline) -> Self {
        Self { deadline: watch::Sender::new(Some(deadline)) }
    }

    pub(crate) fn shorten(&self, to: Deadline) {
        self.deadline.send_if_modified(|deadline| {
            let is_nearer = deadline.is_none_or(|now| to < now);
            if is_nearer {
                *deadline = Some(to);
            }
            is_nearer
        });
    }

    /// How long is left. None if there is no deadline.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline.borrow().map(Deadline::remaining)
    }

    /// Resolves so long after the deadline. Never if there is none.
    pub(crate) async fn passed(&self, after: Duration) {
        let mut deadlines = self.deadline.subscribe();
        loop {
            let seen = *deadlines.borrow_and_update();
            let passed = async {
                match seen.and_then(|at| at.instant().checked_add(after)) {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Its sender is ours, so it does not go away.
            let shortened = async { drop(deadlines.wait_for(|now| *now != seen).await) };
            tokio::select! {
                biased;
                () = passed => return,
                () = shortened => {}
            }
        }
    }
}

// === impl Members ===

impl From<Gathered> for Members {
    fn from(Gathered { group: Group { nodes, addresses }, machine }: Gathered) -> Self {
        let (before, reports) = (HashMap::new(), Vec::new());
        let addresses = addresses.into_iter().map(Some).collect();
        Self { nodes: Arc::new(nodes), addresses, machine, before, reports }
    }
}

impl Members {
    pub(crate) fn nodes(&self) -> Arc<Vec<Arc<dyn Node>>> {
        Arc::clone(&self.nodes)
    }

    /// Drains them all. What is not gone when the countdown is over is killed, and what is not
    /// gone after the grace is given up.
    pub(crate) async fn drain(mut self, countdown: &Countdown, grace: Duration) -> DrainReport {
        if self.nodes.is_empty() {
            return DrainReport::empty();
        }
        let began = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "each node says at most two things")]
        let (says, mut said) = mpsc::unbounded_channel();
        let work = Work { nodes: Arc::clone(&self.nodes), began, says };
        let mut at_work = FuturesUnordered::new();
        let mut pressure = Pressure::None;
        self.machine.begin();
        loop {
            self.carry_out(&work, &at_work);
            if self.machine.all_ended() {
                break;
            }
            let (step, next) = match pressure {
                Pressure::None => (Duration::ZERO, Some(Pressure::Kill)),
                Pressure::Kill => (grace / 2, Some(Pressure::KillAll)),
                Pressure::KillAll => (grace, None),
            };
            tokio::select! {
                biased;
                Some(event) = said.recv() => self.take_in(event),
                Some(()) = at_work.next() => {}
                () = countdown.passed(step) => match next {
                    Some(next) => {
                        pressure = next;
                        self.machine.press(next);
                    }
                    None => break,
                },
            }
        }
        drop(at_work);
        for (id, node) in (0..).zip(&*self.nodes) {
            if !self.machine.has_ended(id) {
                let after = began.elapsed();
                let before = self.before.get(&id).copied().unwrap_or_else(|| Before::of(&**node));
                // It may just have ended, and not have been said yet.
                let ended = caught(|| node.has_terminated()).flatten();
                let ending = ended.map_or(NodeEnding::Abandoned, NodeEnding::from);
                let seen = After::of(&**node, ending);
                self.reports.push(before.report(node.path().clone(), seen, after));
            }
        }
        DrainReport { took: began.elapsed(), nodes: std::mem::take(&mut self.reports) }
    }

    /// Does what the machine has decided.
    fn carry_out(&mut self, work: &Work, at_work: &FuturesUnordered<BoxFuture<'static, ()>>) {
        let (mut stops, mut kills) = (Vec::new(), Vec::new());
        for effect in self.machine.take_effects() {
            match effect {
                Effect::Settle(id) => at_work.push(Box::pin(work.clone().settle(id))),
                Effect::Stop(ids) => stops.push(ids),
                Effect::Kill(id) => kills.push(id),
            }
        }
        // Siblings together: nobody waits for one of them, but for all.
        let above = |ids: &Range<Id>| self.machine.above(ids.start);
        for siblings in stops.chunk_by(|some, others| above(some) == above(others)) {
            let siblings = siblings.to_vec();
            let ids = || siblings.iter().cloned().flatten();
            // Mostly all there are, and their addresses are taken as they stand.
            let are_all = matches!(&*siblings, [ids] if ids.len() == self.addresses.len());
            let addresses = if are_all {
                std::mem::take(&mut self.addresses)
            } else {
                ids().map(|id| self.addresses.get_mut(id as usize)?.take()).collect()
            };
            let settled = ids().filter_map(|id| Some((id, *self.before.get(&id)?))).collect();
            at_work.push(Box::pin(work.clone().stop(siblings, addresses, settled)));
        }
        for id in kills {
            // One that panics is given up like one that cannot be killed.
            caught(|| self.nodes[id as usize].kill());
        }
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Settled(id, before) => {
                self.before.insert(id, before);
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

/// Who gives up half-way leaves nobody waiting for those beneath it.
impl Drop for Members {
    fn drop(&mut self) {
        for (id, node) in (0..).zip(&*self.nodes) {
            // Who has settled may have been about to be told.
            let is_untold = self.before.contains_key(&id) && !self.machine.has_ended(id);
            if is_untold || self.machine.is_half_way(id) {
                caught(|| node.try_drain());
            }
        }
    }
}

// === impl Gone ===

impl Gone {
    fn with_capacity(nodes: usize) -> Self {
        let looks = Vec::with_capacity(TURN.min(nodes));
        Self { ids: Vec::with_capacity(nodes), reports: Vec::with_capacity(nodes), looks }
    }
}

// === impl Before ===

impl Before {
    fn of(node: &dyn Node) -> Self {
        let counts = caught(|| (node.queued(), node.handled()));
        let (queued, handled) = counts.unwrap_or_default();
        Self { queued, handled }
    }

    fn report(self, path: NodePath, seen: After, after: Duration) -> NodeReport {
        let After { ending, handled, dead_letters } = seen;
        let counted = self.handled.zip(handled).map(|(before, after)| after.saturating_sub(before));
        // Who does not count what it does had so many, and left so many behind.
        let drained = counted.or_else(|| {
            let queued = self.queued? as u64;
            Some(queued.saturating_sub(dead_letters.unwrap_or_default()))
        });
        NodeReport::new(path, ending, drained, dead_letters, after)
    }
}

// === impl After ===

impl After {
    fn of(node: &dyn Node, ending: impl Into<NodeEnding>) -> Self {
        let counts = caught(|| (node.handled(), node.dead_letters()));
        let (handled, dead_letters) = counts.unwrap_or_default();
        Self { ending: ending.into(), handled, dead_letters }
    }
}

// === impl Work ===

impl Work {
    /// Asks a node to settle.
    async fn settle(self, id: Id) {
        let node = &*self.nodes[id as usize];
        let before = Before::of(node);
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
                let (path, after) = (node.path().clone(), self.began.elapsed());
                let report = before.report(path, After::of(node, ended), after);
                Event::Ended(vec![id], vec![report])
            }
        };
        let _ = self.says.send(event); // Nobody listens when the drain has been given up.
    }

    /// Gives all of them the pill, and says who has ended, when all have; or now and then, if that
    /// takes long. To be woken by each of them would cost more than to stop it.
    async fn stop(
        self,
        siblings: Vec<Range<Id>>,
        addresses: Vec<Option<Address>>,
        settled: HashMap<Id, Before>,
    ) {
        let mut late = FuturesUnordered::new();
        let many = addresses.len();
        // With room for all: to make room meanwhile would hold up those who stop, because they
        // give back memory.
        let (mut left, mut gone) = (Vec::with_capacity(many), Gone::with_capacity(many));
        // Of this turn, and of the one before it.
        let mut told = Vec::with_capacity(TURN.min(many));
        let mut earlier = Vec::with_capacity(if many > TURN { TURN } else { 0 });
        let mut next = siblings.into_iter().flatten().zip(addresses);
        loop {
            let first = told.len();
            // Looked at together before they are told: then their memory is fetched together.
            told.extend(next.by_ref().take(AHEAD).map(|(id, address)| {
                let settled = settled.get(&id).copied();
                let before = settled.unwrap_or_else(|| Before::of(&*self.nodes[id as usize]));
                Told { id, path: address.map(|address| address.path), before }
            }));
            for Told { id, .. } in &told[first..] {
                let node = &*self.nodes[*id as usize];
                if caught(|| node.try_drain()) == Some(false) {
                    late.push(find_room(node));
                }
            }
            if told.len() == first {
                break;
            }
            if told.len() >= TURN {
                // Those of the turn before, while they are at hand, and while other workers are
                // busy with those of this turn.
                self.look(&mut earlier, &mut gone);
                left.append(&mut earlier);
                std::mem::swap(&mut earlier, &mut told);
                tokio::task::yield_now().await;
            }
        }
        left.append(&mut earlier);
        left.append(&mut told);
        self.look(&mut left, &mut gone);
        let mut pause = Duration::from_millis(10);
        // The last of them: when it has ended, most others have. Then the one before it that has
        // not, so that nobody is looked at for each of the others.
        let mut last = left.len();
        while let Some(told) = last.checked_sub(1).and_then(|last| left.get(last)) {
            if self.look_at(told).is_some() {
                last -= 1;
                continue;
            }
            let node = &self.nodes[told.id as usize];
            let ended = async { node.terminated().await };
            let mut ended = pin!(AssertUnwindSafe(ended).catch_unwind());
            let mut paused = pin!(tokio::time::sleep(pause));
            let mut is_waited_for = true;
            let takes_long = loop {
                tokio::select! {
                    biased;
                    Some(()) = late.next() => {}
                    _ = &mut ended, if is_waited_for => match self.look_at(told) {
                        Some(_) => break false,
                        // Its implementation contradicts itself. It is asked again, later.
                        None => is_waited_for = false,
                    },
                    () = &mut paused => break true,
                }
            };
            if takes_long {
                pause = (pause * 2).min(Duration::from_millis(100));
                self.look(&mut left, &mut gone);
                self.say(std::mem::take(&mut gone));
                last = left.len();
            }
        }
        self.look(&mut left, &mut gone);
        self.say(gone);
    }

    /// Notes who has ended, and keeps who has not.
    fn look(&self, told: &mut Vec<Told>, gone: &mut Gone) {
        let after = self.began.elapsed();
        // At all first, and at nothing else: then their memory is fetched together.
        gone.looks.extend(told.iter().map(|told| self.look_at(told)));
        let mut looks = gone.looks.drain(..);
        told.retain_mut(|told| {
            let Some(seen) = looks.next().flatten() else { return true };
            let path = || self.nodes[told.id as usize].path().clone();
            let path = told.path.take().unwrap_or_else(path);
            gone.ids.push(told.id);
            gone.reports.push(told.before.report(path, seen, after));
            false
        });
    }

    /// None if it has not ended.
    fn look_at(&self, told: &Told) -> Option<After> {
        let node = &*self.nodes[told.id as usize];
        let ended = caught(|| node.has_terminated()).unwrap_or_else(|| Some(panicked()));
        ended.map(|ended| After::of(node, ended))
    }

    /// Says who has ended.
    fn say(&self, Gone { ids, reports, .. }: Gone) {
        if !ids.is_empty() {
            let _ = self.says.send(Event::Ended(ids, reports)); // As above.
        }
    }
}

/// A pill for a mailbox that is full. It is not waited for longer than the node lives.
async fn find_room(node: &dyn Node) {
    let pill = async {
        tokio::select! {
            biased;
            () = node.drain() => {}
            _ = node.terminated() => {}
        }
    };
    let _ = AssertUnwindSafe(pill).catch_unwind().await;
}

fn panicked() -> Ended {
    Ended::Failed { error: "its implementation of `Node` panicked".into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gather::gather;

    /// Counts its pills.
    struct Counts {
        path: NodePath,
        pills: AtomicUsize,
    }

    impl Node for Counts {
        fn path(&self) -> &NodePath {
            &self.path
        }

        fn drain(&self) -> BoxFuture<'_, ()> {
            self.pills.fetch_add(1, Ordering::Relaxed);
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
    fn who_has_settled_is_not_left_waiting_when_the_drain_is_given_up() {
        let path = NodePath::user().child("parent").unwrap();
        let new = |path: NodePath| Arc::new(Counts { path, pills: AtomicUsize::new(0) });
        let (parent, child) = (new(path.clone()), new(path.child("child").unwrap()));
        let address = Address { path: child.path.clone(), depth: child.path.depth() };
        let nodes: Vec<Arc<dyn Node>> = vec![child];
        let beneath = Group { nodes, addresses: vec![address] };
        let mut members = Members::from(gather(&path, Some(Arc::clone(&parent) as _), beneath));
        members.machine.begin();
        members.take_in(Event::Settled(0, Before::of(&*parent)));
        members.take_in(Event::Ended(vec![1], Vec::new()));
        // Now the parent would be told.
        assert_eq!(members.machine.take_effects().len(), 3);
        drop(members);
        assert_eq!(parent.pills.load(Ordering::Relaxed), 1);
    }
}
