//! Decides who is told what, and when, while a tree is drained. Pure: no clock, no runtime.
//!
//! # Invariants
//!
//! 1. Nobody is told to stop before all that are beneath it have ended.
//! 2. Those beneath are told nothing before the one above has settled or ended, so that what it
//!    still wants of them finds them open.
//! 3. Siblings do not wait for each other.
//! 4. When time is up, whoever works is killed, wherever it is; whoever only waits for those
//!    beneath it is not, because its stop hook may need nothing but them gone.

/// Which node.
pub(crate) type Id = u32;

/// What is to be done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Settle(Id),
    Stop(Id),
    Kill(Id),
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Told nothing yet.
    Open,
    /// Works off what has come, before those beneath it are told.
    Settling,
    /// Has settled; those beneath it have not ended yet.
    Waiting,
    /// Has been given the pill.
    Stopping,
    Ended,
}

/// How much time there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    None,
    /// The deadline has passed: whoever works is killed.
    Kill,
    /// So has half of the grace: everybody is, and again.
    KillAll,
}

/// Small, because there may be very many.
#[derive(Debug)]
struct Slot {
    above: Option<Id>,
    /// The last that was added beneath it; and the one that was added before it beside it.
    last_beneath: Option<Id>,
    beside: Option<Id>,
    /// How many beneath have not ended.
    left: u32,
    state: State,
}

/// A tree that is being drained.
#[derive(Debug)]
pub(crate) struct Machine {
    slots: Vec<Slot>,
    left: usize,
    pressure: Pressure,
    effects: Vec<Effect>,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        let (slots, effects) = (Vec::with_capacity(nodes), Vec::with_capacity(nodes));
        Self { slots, left: 0, pressure: Pressure::None, effects }
    }

    /// Another node, beneath one that is known, or at the top. Only before it begins.
    pub(crate) fn add(&mut self, above: Option<Id>) -> Id {
        // More than that have no room in memory.
        let id = Id::try_from(self.slots.len()).unwrap_or(Id::MAX);
        let beside = above.and_then(|above| {
            let above = self.slot(above);
            above.left += 1;
            above.last_beneath.replace(id)
        });
        let (last_beneath, left, state) = (None, 0, State::Open);
        self.slots.push(Slot { above, last_beneath, beside, left, state });
        self.left += 1;
        id
    }

    fn slot(&mut self, id: Id) -> &mut Slot {
        &mut self.slots[id as usize]
    }

    fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        0..self.slots.len() as Id
    }

    pub(crate) fn begin(&mut self) {
        for id in self.ids() {
            if self.slot(id).above.is_none() {
                self.tell(id);
            }
        }
    }

    /// The node has worked off what had come.
    pub(crate) fn settled(&mut self, id: Id) {
        if self.slot(id).state != State::Settling {
            return;
        }
        self.slot(id).state = State::Waiting;
        self.tell_beneath(id);
        self.stop_if_alone(id);
    }

    /// The node has ended, by whatever cause and at whatever time.
    pub(crate) fn ended(&mut self, id: Id) {
        if self.slot(id).state == State::Ended {
            return;
        }
        self.slot(id).state = State::Ended;
        self.left -= 1;
        self.tell_beneath(id);
        if let Some(above) = self.slot(id).above {
            self.slot(above).left -= 1;
            self.stop_if_alone(above);
        }
    }

    /// There is less time. It never grows.
    pub(crate) fn press(&mut self, pressure: Pressure) {
        if pressure <= self.pressure {
            return;
        }
        self.pressure = pressure;
        for id in self.ids() {
            match self.slot(id).state {
                State::Ended => {}
                State::Waiting if pressure < Pressure::KillAll => {}
                State::Open | State::Settling | State::Waiting | State::Stopping => self.kill(id),
            }
        }
    }

    /// Whether it has been told something, and will be told more.
    pub(crate) fn is_half_way(&self, id: Id) -> bool {
        matches!(self.slots[id as usize].state, State::Settling | State::Waiting)
    }

    pub(crate) fn above(&self, id: Id) -> Option<Id> {
        self.slots[id as usize].above
    }

    pub(crate) fn has_ended(&self, id: Id) -> bool {
        self.slots[id as usize].state == State::Ended
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.left == 0
    }

    /// What is to be done now, in this order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn tell(&mut self, id: Id) {
        let slot = self.slot(id);
        if slot.state != State::Open {
            return;
        }
        if slot.left > 0 {
            slot.state = State::Settling;
            self.effects.push(Effect::Settle(id));
        } else {
            self.stop(id);
        }
    }

    fn tell_beneath(&mut self, id: Id) {
        let mut next = self.slot(id).last_beneath.take();
        while let Some(beneath) = next {
            next = self.slot(beneath).beside;
            self.tell(beneath);
        }
    }

    fn stop_if_alone(&mut self, id: Id) {
        let Slot { state, left, .. } = self.slot(id);
        if *state == State::Waiting && *left == 0 {
            self.stop(id);
        }
    }

    fn stop(&mut self, id: Id) {
        self.slot(id).state = State::Stopping;
        self.effects.push(Effect::Stop(id));
        if self.pressure == Pressure::KillAll {
            self.kill(id);
        }
    }

    fn kill(&mut self, id: Id) {
        if self.slot(id).state == State::Open {
            // Its end is awaited like that of the others.
            self.slot(id).state = State::Stopping;
            self.effects.push(Effect::Stop(id));
        }
        self.effects.push(Effect::Kill(id));
    }
}

#[cfg(test)]
mod tests {
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
        asked: Vec<Effect>,
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
                    Effect::Stop(id) | Effect::Settle(id) => {
                        let stops = matches!(effect, Effect::Stop(_));
                        assert!(self.told.insert((stops, id)), "told twice: {effect:?}");
                        let beneath = self.beneath(id);
                        let all_gone = beneath.iter().all(|id| self.ended.contains(id));
                        assert!(!stops || all_gone || self.is_pressed, "{id} before those beneath");
                        let above = self.case.above[id as usize];
                        let may =
                            |above| self.settled.contains(&above) || self.ended.contains(&above);
                        assert!(above.is_none_or(may) || self.is_pressed, "{id} too early");
                        self.asked.push(effect);
                    }
                }
            }
        }

        fn beneath(&self, id: Id) -> Vec<Id> {
            self.machine.ids().filter(|one| self.case.above[*one as usize] == Some(id)).collect()
        }

        /// Answers whatever can be answered.
        fn run(&mut self) {
            self.take_effects();
            let mut turn = 0;
            loop {
                let can: Vec<usize> = (0..self.asked.len())
                    .filter(|at| {
                        let (Effect::Settle(id) | Effect::Stop(id) | Effect::Kill(id)) =
                            self.asked[*at];
                        !self.case.stuck[id as usize] || self.killed.contains(&id)
                    })
                    .collect();
                if can.is_empty() {
                    return;
                }
                let at = can[self.case.order[turn % self.case.order.len()] % can.len()];
                turn += 1;
                match self.asked.swap_remove(at) {
                    Effect::Settle(id)
                        if !self.case.dies_instead[id as usize] && !self.killed.contains(&id) =>
                    {
                        self.settled.insert(id);
                        self.machine.settled(id);
                    }
                    Effect::Settle(id) | Effect::Stop(id) | Effect::Kill(id) => {
                        self.ended.insert(id);
                        self.machine.ended(id);
                    }
                }
                self.take_effects();
            }
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
                world.machine.ids().filter(|id| world.machine.slots[*id as usize].state == State::Waiting).collect();
            world.is_pressed = true;
            world.machine.press(Pressure::Kill);
            world.take_effects();
            for id in waiting {
                prop_assert!(!world.killed.contains(&id));
            }
        }
    }
}
