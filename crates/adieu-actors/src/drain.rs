//! Drains a tree: does what the machine decides, and joins all that it began.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::countdown::Countdown;
use crate::gather::Gathered;
use crate::letters::Letters;
use crate::machine::{Effect, Id, Machine, Pressure};
use crate::node::{Counts, Ended, Node, caught};
use crate::path::NodePath;
use crate::quiet::{Found, address};
use crate::report::{DrainReport, NodeEnding, NodeReport};
use crate::roster::{Address, Group};

/// The frame in which members are drained.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) countdown: &'a Countdown,
    pub(crate) grace: Duration,
    pub(crate) began: Instant,
    pub(crate) letters: &'a Letters,
    /// How many there were when the drain began.
    pub(crate) letters_before: u64,
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
    /// What those had to do that were found at work.
    before: HashMap<Id, Counts>,
    settled: HashSet<Id>,
    /// In the order in which they were seen to end.
    reports: Vec<NodeReport>,
}

enum Event {
    Settled(Id, Counts),
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
    before: Counts,
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

    /// The same, knowing what they had to do when the drain began.
    pub(crate) fn found(mut self, found: &Found) -> Self {
        if !found.is_empty() {
            let at = (0..).zip(&*self.nodes).map(|(id, node)| (id, address(node)));
            self.before = at.filter_map(|(id, at)| Some((id, *found.get(&at)?))).collect();
        }
        self
    }

    /// Stops them all. Nodes that have not ended when the countdown is over are killed, and those
    /// that have not ended after the grace are given up.
    pub(crate) async fn drain(mut self, setting: &Setting<'_>) -> DrainReport {
        let Setting { countdown, grace, began, letters, letters_before } = *setting;
        if self.nodes.is_empty() {
            return DrainReport { took: began.elapsed(), ..DrainReport::empty() };
        }
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
                let before = self.before.get(&id).copied().unwrap_or_else(|| Counts::of(&**node));
                // It may just have ended, and not have been said yet.
                let ended = caught(|| node.has_terminated()).flatten();
                let ending = ended.map_or(NodeEnding::Abandoned, NodeEnding::from);
                let seen = After::of(&**node, ending);
                self.reports.push(before.report(node.path().clone(), seen, after));
            }
        }
        if letters.count() != letters_before {
            self.count_late_letters();
        }
        DrainReport { took: began.elapsed(), nodes: std::mem::take(&mut self.reports) }
    }

    /// Messages may have been refused by a node after it had ended and was reported.
    fn count_late_letters(&mut self) {
        let count = |node: &Arc<dyn Node>| {
            let letters = caught(|| node.dead_letters()).flatten().filter(|count| *count > 0)?;
            Some((node.path().clone(), letters))
        };
        let letters: HashMap<NodePath, u64> = self.nodes.iter().filter_map(count).collect();
        for report in &mut self.reports {
            if let Some(letters) = letters.get(report.path()) {
                report.set_dead_letters(*letters);
            }
        }
    }

    /// Does what the machine has decided.
    fn carry_out(&mut self, work: &Work, at_work: &FuturesUnordered<BoxFuture<'static, ()>>) {
        let (mut stops, mut kills) = (Vec::new(), Vec::new());
        for effect in self.machine.take_effects() {
            match effect {
                Effect::Settle(id) => {
                    let before = self.before.get(&id).copied();
                    at_work.push(Box::pin(work.clone().settle(id, before)));
                }
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
            let before = ids().filter_map(|id| Some((id, *self.before.get(&id)?))).collect();
            at_work.push(Box::pin(work.clone().stop(siblings, addresses, before)));
        }
        for id in kills {
            // One that panics is given up like one that cannot be killed.
            caught(|| self.nodes[id as usize].kill());
        }
    }

    fn take_in(&mut self, event: Event) {
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

/// Who gives up half-way leaves nobody waiting for those beneath it.
impl Drop for Members {
    fn drop(&mut self) {
        for (id, node) in (0..).zip(&*self.nodes) {
            // Who has settled may have been about to be told.
            let is_untold = self.settled.contains(&id) && !self.machine.has_ended(id);
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

// === impl Counts ===

impl Counts {
    fn report(self, path: NodePath, seen: After, after: Duration) -> NodeReport {
        let After { ending, handled, dead_letters } = seen;
        let counted = self.handled.zip(handled).map(|(before, after)| after.saturating_sub(before));
        // Nodes without a `handled` counter: infer it from the queue length minus dead letters. That
        // says nothing of one that did not come to its end, or whose dead letters are unknown.
        let drained = counted.or_else(|| {
            let queued = self.queued? as u64;
            let is_drained = ending == NodeEnding::Drained;
            is_drained.then(|| Some(queued.saturating_sub(dead_letters?))).flatten()
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
        found: HashMap<Id, Counts>,
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
                let found = found.get(&id).copied();
                let before = found.unwrap_or_else(|| Counts::of(&*self.nodes[id as usize]));
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
    struct Pills {
        path: NodePath,
        pills: AtomicUsize,
    }

    impl Node for Pills {
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
        let new = |path: NodePath| Arc::new(Pills { path, pills: AtomicUsize::new(0) });
        let (parent, child) = (new(path.clone()), new(path.child("child").unwrap()));
        let address = Address { path: child.path.clone(), depth: child.path.depth() };
        let nodes: Vec<Arc<dyn Node>> = vec![child];
        let beneath = Group { nodes, addresses: vec![address] };
        let mut members = Members::from(gather(&path, Some(Arc::clone(&parent) as _), beneath));
        members.machine.begin();
        members.take_in(Event::Settled(0, Counts::of(&*parent)));
        members.take_in(Event::Ended(vec![1], Vec::new()));
        // Now the parent would be told.
        assert_eq!(members.machine.take_effects().len(), 3);
        drop(members);
        assert_eq!(parent.pills.load(Ordering::Relaxed), 1);
    }
}
