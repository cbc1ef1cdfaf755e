//! Random trees and random orders of events: leaves stop first, each effect is requested once, and
//! every node ends.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A random tree, and the order in which its nodes complete their effects.
#[derive(Clone, Debug)]
struct Case {
    parents: Vec<Option<Id>>,
    /// Nodes that complete no effect until they are killed.
    stuck: Vec<bool>,
    /// Nodes that end when they are asked to settle.
    ends_instead: Vec<bool>,
    order: Vec<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    (1usize..24).prop_flat_map(|size| {
        let parents: Vec<_> = (0..size as Id)
            .map(|id| (0..=id).prop_map(move |parent| (parent < id).then_some(parent)).boxed())
            .collect();
        let flags = || proptest::collection::vec(proptest::bool::weighted(0.2), size);
        let order = proptest::collection::vec(any::<usize>(), 200);
        (parents, flags(), flags(), order).prop_map(|(parents, stuck, ends_instead, order)| Case {
            parents,
            stuck,
            ends_instead,
            order,
        })
    })
}

/// Completes the requested effects in a random order, and checks each request.
struct Driver {
    case: Case,
    machine: Machine,
    /// Requested effects that are not completed: the node, and whether to stop or to settle.
    pending: Vec<(Id, bool)>,
    settled: HashSet<Id>,
    ended: HashSet<Id>,
    killed: HashSet<Id>,
    requested: HashSet<(bool, Id)>,
    is_escalated: bool,
    /// Whether nodes are killed in any order.
    is_last: bool,
}

impl Driver {
    fn new(case: Case) -> Self {
        let mut machine = Machine::with_capacity(0);
        for parent in &case.parents {
            machine.add(*parent);
        }
        machine.begin();
        let (settled, ended, killed, requested) = Default::default();
        let pending = Vec::new();
        Self {
            case,
            machine,
            pending,
            settled,
            ended,
            killed,
            requested,
            is_escalated: false,
            is_last: false,
        }
    }

    fn take_effects(&mut self) {
        let mut effects = VecDeque::from(self.machine.take_effects());
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Kill(id) => {
                    assert!(self.is_escalated, "killed before the deadline");
                    let have_ended = self.children(id).iter().all(|id| self.ended.contains(id));
                    assert!(have_ended || self.is_last, "{id} was killed before its children");
                    self.killed.insert(id);
                    continue; // It completes the effect that was requested before.
                }
                Effect::Settle(id) => self.request(id, false),
                Effect::Stop(ids) => {
                    let parent = |id: Id| self.case.parents[id as usize];
                    assert!(ids.clone().all(|id| parent(id) == parent(ids.start)), "not siblings");
                    ids.clone().for_each(|id| self.request(id, true));
                    for id in ids.filter(|_| self.is_escalated) {
                        if self.case.stuck[id as usize] {
                            self.machine.has_work(id);
                        }
                    }
                    effects.extend(self.machine.take_effects());
                }
            }
        }
    }

    /// Checks and notes a request to settle, or to stop.
    fn request(&mut self, id: Id, stops: bool) {
        assert!(self.requested.insert((stops, id)), "requested twice: {id}");
        let have_ended = self.children(id).iter().all(|id| self.ended.contains(id));
        assert!(!stops || have_ended || self.is_escalated, "{id} before its children");
        let parent = self.case.parents[id as usize];
        let is_ready = |parent| self.settled.contains(&parent) || self.ended.contains(&parent);
        assert!(parent.is_none_or(is_ready) || self.is_escalated, "{id} before its parent settled");
        self.pending.push((id, stops));
    }

    fn children(&self, id: Id) -> Vec<Id> {
        self.machine.ids().filter(|one| self.case.parents[*one as usize] == Some(id)).collect()
    }

    /// Completes effects until none can be completed.
    fn run(&mut self) {
        let mut turn = 0;
        loop {
            let random = self.case.order[turn % self.case.order.len()];
            turn += 1;
            // Effects are taken after each completion, or after several.
            if self.completable().is_empty() || random & 1 == 0 {
                self.take_effects();
            }
            let completable = self.completable();
            if completable.is_empty() {
                return;
            }
            let at = completable[(random >> 1) % completable.len()];
            let (id, stops) = self.pending.swap_remove(at);
            let ends = self.case.ends_instead[id as usize] || self.killed.contains(&id);
            if stops || ends {
                self.ended.insert(id);
                self.machine.ended(id);
            } else {
                self.settled.insert(id);
                self.machine.settled(id);
            }
        }
    }

    /// Returns the indices of pending effects whose node can complete them.
    fn completable(&self) -> Vec<usize> {
        let can = |id: Id| !self.case.stuck[id as usize] || self.killed.contains(&id);
        (0..self.pending.len()).filter(|at| can(self.pending[*at].0)).collect()
    }
}

proptest! {
    #[test]
    fn leaves_stop_first_and_every_node_ends(case in cases()) {
        let stuck = case.stuck.contains(&true);
        let size = case.parents.len();
        let mut driver = Driver::new(case);
        driver.run();
        prop_assert!(stuck || driver.machine.all_ended());
        // After the deadline stuck nodes end, too, because they are killed.
        for urgency in [Urgency::Kill, Urgency::KillAgain, Urgency::KillAll] {
            driver.is_escalated = true;
            driver.is_last = urgency == Urgency::KillAll;
            driver.machine.escalate(urgency);
            driver.run();
            // Every node reacts to a kill, so the first escalation is enough.
            prop_assert!(driver.machine.all_ended(), "{:?}", urgency);
        }
        prop_assert!(driver.machine.all_ended());
        prop_assert_eq!(driver.ended.len(), size);
    }

    #[test]
    fn waiting_nodes_are_not_killed_at_the_deadline(case in cases()) {
        let mut driver = Driver::new(case);
        driver.run();
        let waiting: Vec<Id> =
            driver.machine.ids().filter(|id| driver.machine.state(*id) == State::Waiting).collect();
        driver.is_escalated = true;
        driver.machine.escalate(Urgency::Kill);
        driver.take_effects();
        for id in waiting {
            prop_assert!(!driver.killed.contains(&id));
        }
    }
}

#[test]
fn adjacent_siblings_stop_together() {
    let mut machine = Machine::with_capacity(0);
    let parent = machine.add(None);
    for _ in 0..1000 {
        machine.add(Some(parent));
    }
    let alone = machine.add(None);
    machine.begin();
    assert_eq!(machine.take_effects(), [Effect::Settle(parent), Effect::Stop(alone..alone + 1)]);
    machine.settled(parent);
    assert_eq!(machine.take_effects(), [Effect::Stop(1..1001)]);
}

#[test]
fn nodes_without_parents_stop_at_once() {
    let mut machine = Machine::with_capacity(0);
    machine.add_many(1000);
    machine.begin();
    assert_eq!(machine.take_effects(), [Effect::Stop(0..1000)]);
    for id in 0..1000 {
        assert!(!machine.all_ended());
        machine.ended(id);
        machine.ended(id);
    }
    assert!(machine.all_ended());
    assert_eq!(machine.take_effects(), []);
}
