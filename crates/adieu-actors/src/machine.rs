//! Decides who is told what, and when, while a tree is drained. Pure: no clock, no runtime.
//!
//! # Invariants
//!
//! 1. Nobody is told to stop before all that are beneath it have ended.
//! 2. Those beneath are told nothing before the one above has settled or ended, so that what it
//!    still wants of them finds them open.
//! 3. Siblings do not wait for each other.
//! 4. When time is up, a node that works is killed, wherever it is, but not before its children have
//!    ended: they may have nothing to do, and then they stop as they should. A node that only waits
//!    for its children is not killed, because its stop hook may need nothing but their end. When half
//!    of the grace has passed as well, all nodes are killed.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Which node.
pub(crate) type Id = u32;

/// What is to be done to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Settle(Id),
    /// Siblings, of whom nobody has anybody beneath it any more.
    Stop(Range<Id>),
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
    /// Still works although time is up. It is killed when its children have ended.
    Doomed,
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

/// Who is above and beneath a node.
#[derive(Clone, Debug, Default)]
struct Kin {
    above: Option<Id>,
    /// The last that was added beneath it; and the one that was added before it beside it.
    last_beneath: Option<Id>,
    beside: Option<Id>,
    /// How many beneath have not ended.
    left: u32,
}

/// A tree that is being drained.
#[derive(Debug)]
pub(crate) struct Machine {
    /// A byte each, because there may be very many.
    states: Vec<State>,
    /// As far as there are any: very many have nobody above or beneath them.
    kin: Vec<Kin>,
    left: usize,
    pressure: Pressure,
    effects: Vec<Effect>,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        let (states, kin, effects) = (Vec::with_capacity(nodes), Vec::new(), Vec::new());
        Self { states, kin, left: 0, pressure: Pressure::None, effects }
    }

    /// Another node, beneath one that is known, or at the top. Only before it begins.
    pub(crate) fn add(&mut self, above: Option<Id>) -> Id {
        // More than that have no room in memory.
        let id = Id::try_from(self.states.len()).unwrap_or(Id::MAX);
        self.states.push(State::Open);
        self.left += 1;
        if let Some(above) = above {
            self.kin.resize(self.states.len(), Kin::default());
            let parent = &mut self.kin[above as usize];
            parent.left += 1;
            let beside = parent.last_beneath.replace(id);
            self.kin[id as usize] = Kin { above: Some(above), beside, ..Kin::default() };
        }
        id
    }

    fn state(&self, id: Id) -> State {
        self.states[id as usize]
    }

    fn becomes(&mut self, id: Id, state: State) {
        self.states[id as usize] = state;
    }

    /// How many beneath it have not ended.
    fn beneath(&self, id: Id) -> u32 {
        self.kin.get(id as usize).map_or(0, |kin| kin.left)
    }

    fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        0..self.states.len() as Id
    }

    /// So many more nodes at the top. Only before it begins.
    pub(crate) fn add_many(&mut self, many: usize) {
        self.states.resize(self.states.len() + many, State::Open);
        self.left += many;
    }

    pub(crate) fn begin(&mut self) {
        if self.kin.is_empty() {
            // Nobody is above another.
            self.states.fill(State::Stopping);
            self.effects.push(Effect::Stop(0..self.states.len() as Id));
            return;
        }
        for id in self.ids() {
            if self.above(id).is_none() {
                self.tell(id);
            }
        }
    }

    /// The node has worked off what had come.
    pub(crate) fn settled(&mut self, id: Id) {
        if !matches!(self.state(id), State::Settling | State::Doomed) {
            return;
        }
        self.becomes(id, State::Waiting);
        self.tell_beneath(id);
        self.stop_if_alone(id);
    }

    /// The node has ended, by whatever cause and at whatever time.
    pub(crate) fn ended(&mut self, id: Id) {
        if self.state(id) == State::Ended {
            return;
        }
        self.becomes(id, State::Ended);
        self.left -= 1;
        self.tell_beneath(id);
        if let Some(above) = self.above(id) {
            self.kin[above as usize].left -= 1;
            self.stop_if_alone(above);
        }
    }

    /// There is less time. It never grows.
    pub(crate) fn press(&mut self, pressure: Pressure) {
        if pressure <= self.pressure {
            return;
        }
        self.pressure = pressure;
        let all = pressure == Pressure::KillAll;
        // As it stands now: children that are told below have their time until the next step.
        let at_work = self.ids().filter(|id| match self.state(*id) {
            State::Settling | State::Stopping => true,
            State::Open | State::Waiting | State::Doomed => all,
            State::Ended => false,
        });
        for id in at_work.collect::<Vec<_>>() {
            if !all && self.state(id) == State::Settling && self.beneath(id) > 0 {
                self.becomes(id, State::Doomed);
                self.tell_beneath(id);
            } else {
                self.kill(id);
            }
        }
    }

    /// Whether it has been told something, and will be told more.
    pub(crate) fn is_half_way(&self, id: Id) -> bool {
        matches!(self.state(id), State::Settling | State::Waiting | State::Doomed)
    }

    pub(crate) fn above(&self, id: Id) -> Option<Id> {
        self.kin.get(id as usize)?.above
    }

    pub(crate) fn has_ended(&self, id: Id) -> bool {
        self.state(id) == State::Ended
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.left == 0
    }

    /// What is to be done now, in this order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn tell(&mut self, id: Id) {
        if self.state(id) != State::Open {
            return;
        }
        if self.beneath(id) == 0 {
            self.stop(id);
        } else if self.pressure == Pressure::None {
            self.becomes(id, State::Settling);
            self.effects.push(Effect::Settle(id));
        } else {
            // There is no time to settle.
            self.becomes(id, State::Waiting);
            self.tell_beneath(id);
        }
    }

    fn tell_beneath(&mut self, id: Id) {
        let mut next = self.kin.get_mut(id as usize).and_then(|kin| kin.last_beneath.take());
        while let Some(beneath) = next {
            next = self.kin[beneath as usize].beside;
            self.tell(beneath);
        }
    }

    fn stop_if_alone(&mut self, id: Id) {
        if self.beneath(id) > 0 {
            return;
        }
        match self.state(id) {
            State::Waiting => self.stop(id),
            // Its end is awaited since it was asked to settle.
            State::Doomed => self.effects.push(Effect::Kill(id)),
            State::Open | State::Settling | State::Stopping | State::Ended => {}
        }
    }

    fn stop(&mut self, id: Id) {
        self.stop_with_those_beside_it(id);
        if self.pressure == Pressure::KillAll {
            self.kill(id);
        }
    }

    fn kill(&mut self, id: Id) {
        if self.state(id) == State::Open {
            // Its end is awaited like that of the others.
            self.stop_with_those_beside_it(id);
        }
        self.effects.push(Effect::Kill(id));
    }

    /// One effect for all that lie beside each other: there may be very many.
    fn stop_with_those_beside_it(&mut self, id: Id) {
        self.becomes(id, State::Stopping);
        let Self { kin, effects, .. } = self;
        let above = |id: Id| kin.get(id as usize)?.above;
        if let Some(Effect::Stop(ids)) = effects.last_mut()
            && above(ids.start) == above(id)
        {
            if ids.end == id {
                ids.end = id + 1;
                return;
            }
            if ids.start == id + 1 {
                ids.start = id;
                return;
            }
        }
        effects.push(Effect::Stop(id..id + 1));
    }
}
