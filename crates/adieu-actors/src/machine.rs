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

#[cfg(test)]
mod tests;

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
