//! Random trees, random answers: leaves first, each told once, nobody forgotten.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// A random tree, who is stuck until it is killed, and what is answered first.
#[derive(Clone, Debug)]
struct Case {
    above: Vec<Option<Id>>,
    stuck: Vec<bool>,
    dies_instead: Vec<bool>,
    order: Vec<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    (1usize..24).prop_flat_map(|size| {
        let above: Vec<_> = (0..size as Id)
            .map(|id| (0..=id).prop_map(move |above| (above < id).then_some(above)).boxed())
            .collect();
        let flags = || proptest::collection::vec(proptest::bool::weighted(0.2), size);
        let order = proptest::collection::vec(any::<usize>(), 200);
        (above, flags(), flags(), order).prop_map(|(above, stuck, dies_instead, order)| Case {
            above,
            stuck,
            dies_instead,
            order,
        })
    })
}

/// Answers what the machine asks for, in a random order, and checks each thing it asks.
struct World {
    case: Case,
    machine: Machine,
    /// Whom, and whether to stop or to settle.
    asked: Vec<(Id, bool)>,
    settled: HashSet<Id>,
    ended: HashSet<Id>,
    killed: HashSet<Id>,
    told: HashSet<(bool, Id)>,
    is_pressed: bool,
}

impl World {
    fn new(case: Case) -> Self {
        let mut machine = Machine::with_capacity(0);
        for above in &case.above {
            machine.add(*above);
        }
        machine.begin();
        let (settled, ended, killed, told) = Default::default();
        let asked = Vec::new();
        Self { case, machine, asked, settled, ended, killed, told, is_pressed: false }
    }

    fn take_effects(&mut self) {
        for effect in self.machine.take_effects() {
            match effect {
                Effect::Kill(id) => {
                    assert!(self.is_pressed, "killed in time");
                    self.killed.insert(id);
                    continue; // Its end is answered to what it was told before.
                }
                Effect::Settle(id) => self.asks(id, false),
                Effect::Stop(ids) => {
                    let above = |id: Id| self.case.above[id as usize];
                    assert!(ids.clone().all(|id| above(id) == above(ids.start)), "no siblings");
                    ids.for_each(|id| self.asks(id, true));
                }
            }
        }
    }

    /// It is asked to settle, or to stop.
    fn asks(&mut self, id: Id, stops: bool) {
        assert!(self.told.insert((stops, id)), "told twice: {id}");
        let all_gone = self.beneath(id).iter().all(|id| self.ended.contains(id));
        assert!(!stops || all_gone || self.is_pressed, "{id} before those beneath");
        let above = self.case.above[id as usize];
        let may = |above| self.settled.contains(&above) || self.ended.contains(&above);
        assert!(above.is_none_or(may) || self.is_pressed, "{id} too early");
        self.asked.push((id, stops));
    }

    fn beneath(&self, id: Id) -> Vec<Id> {
        self.machine.ids().filter(|one| self.case.above[*one as usize] == Some(id)).collect()
    }

    /// Answers whatever can be answered.
    fn run(&mut self) {
        let mut turn = 0;
        loop {
            let random = self.case.order[turn % self.case.order.len()];
            turn += 1;
            // What the machine asks is heard after each answer, or after some.
            if self.can_be_answered().is_empty() || random & 1 == 0 {
                self.take_effects();
            }
            let can = self.can_be_answered();
            if can.is_empty() {
                return;
            }
            let at = can[(random >> 1) % can.len()];
            let (id, stops) = self.asked.swap_remove(at);
            let dies = self.case.dies_instead[id as usize] || self.killed.contains(&id);
            if stops || dies {
                self.ended.insert(id);
                self.machine.ended(id);
            } else {
                self.settled.insert(id);
                self.machine.settled(id);
            }
        }
    }

    /// Which of those that are asked something can answer.
    fn can_be_answered(&self) -> Vec<usize> {
        let can = |id: Id| !self.case.stuck[id as usize] || self.killed.contains(&id);
        (0..self.asked.len()).filter(|at| can(self.asked[*at].0)).collect()
    }
}

proptest! {
    #[test]
    fn leaves_first_each_told_once_and_nobody_forgotten(case in cases()) {
        let stuck = case.stuck.contains(&true);
        let size = case.above.len();
        let mut world = World::new(case);
        world.run();
        prop_assert!(stuck || world.machine.all_ended());
        // Time is up: now also who is stuck can be ended.
        for pressure in [Pressure::Kill, Pressure::KillAll] {
            world.is_pressed = true;
            world.machine.press(pressure);
            world.run();
        }
        prop_assert!(world.machine.all_ended());
        prop_assert_eq!(world.ended.len(), size);
    }

    #[test]
    fn who_only_waits_is_not_killed_at_the_deadline(case in cases()) {
        let mut world = World::new(case);
        world.run();
        let waiting: Vec<Id> =
            world.machine.ids().filter(|id| world.machine.state(*id) == State::Waiting).collect();
        world.is_pressed = true;
        world.machine.press(Pressure::Kill);
        world.take_effects();
        for id in waiting {
            prop_assert!(!world.killed.contains(&id));
        }
    }
}

#[test]
fn siblings_beside_each_other_are_told_together() {
    let mut machine = Machine::with_capacity(0);
    let above = machine.add(None);
    for _ in 0..1000 {
        machine.add(Some(above));
    }
    let alone = machine.add(None);
    machine.begin();
    assert_eq!(machine.take_effects(), [Effect::Settle(above), Effect::Stop(alone..alone + 1)]);
    machine.settled(above);
    assert_eq!(machine.take_effects(), [Effect::Stop(1..1001)]);
}

#[test]
fn many_at_the_top_are_told_at_once() {
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
