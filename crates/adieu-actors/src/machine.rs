//! Decides which node is stopped when, while a tree is drained. Pure: no clock, no runtime.
//!
//! # Invariants
//!
//! 1. A node is stopped only after all its children have ended.
//! 2. Children are stopped only after their parent has settled or ended, so that they accept the
//!    messages that the parent's remaining work sends.
//! 3. Siblings do not wait for each other.
//! 4. Nodes are killed at three instants:
//!    - At the deadline and after it, each node with work is killed when its children have ended: a
//!      child without work can still stop in order. A node that only waits for its children is not
//!      killed, because it can stop as soon as they have ended.
//!    - When half of the grace has passed, nodes that were sent a stop message are killed, and
//!      nodes that were killed at the deadline are killed a second time.
//!    - When three quarters of the grace have passed, all nodes are killed, in any order.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// The number of a node in this drain.
pub(crate) type Id = u32;

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Settle(Id),
    /// Stop these siblings. All their children have ended.
    Stop(Range<Id>),
    Kill(Id),
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No effect was requested yet.
    Open,
    /// Processes accepted messages, before its children are stopped.
    Settling,
    /// Has settled, and waits until its children have ended.
    Waiting,
    /// Still settling at the deadline. It is killed when its children have ended.
    KillPending,
    /// Was sent a stop message, or was killed at an escalation.
    Stopping,
    /// Was killed between two escalations, when its children had ended. It has until the last
    /// escalation for its stop hook.
    Killed,
    Ended,
}

/// How urgent the drain is. It only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    None,
    /// The deadline has passed: nodes with work are killed.
    Kill,
    /// Half of the grace has passed: nodes that do not stop are killed, and killed nodes again.
    KillAgain,
    /// Three quarters of the grace have passed: all nodes are killed, parents with their children.
    KillAll,
}

/// The parent and children of a node.
#[derive(Clone, Debug, Default)]
struct FamilyLinks {
    parent: Option<Id>,
    /// The child that was added last. The others follow through `previous_sibling`.
    last_child: Option<Id>,
    previous_sibling: Option<Id>,
    /// How many children have not ended.
    living_children: u32,
}

/// A tree that is being drained.
#[derive(Debug)]
pub(crate) struct Machine {
    /// One byte for each node, because there may be very many.
    states: Vec<State>,
    /// Shorter than `states` if the last nodes have no parent. Empty if no node has one, which is
    /// common with very many nodes.
    links: Vec<FamilyLinks>,
    living: usize,
    urgency: Urgency,
    effects: Vec<Effect>,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        let (states, links, effects) = (Vec::with_capacity(nodes), Vec::new(), Vec::new());
        Self { states, links, living: 0, urgency: Urgency::None, effects }
    }

    /// Adds a node, below a parent that was added before, or at the top. Must be called
    /// before `begin`.
    pub(crate) fn add(&mut self, parent: Option<Id>) -> Id {
        // More nodes than that do not fit into memory.
        let id = Id::try_from(self.states.len()).unwrap_or(Id::MAX);
        self.states.push(State::Open);
        self.living += 1;
        if let Some(parent) = parent {
            self.links.resize(self.states.len(), FamilyLinks::default());
            let links = &mut self.links[parent as usize];
            links.living_children += 1;
            let previous_sibling = links.last_child.replace(id);
            self.links[id as usize] =
                FamilyLinks { parent: Some(parent), previous_sibling, ..FamilyLinks::default() };
        }
        id
    }

    fn state(&self, id: Id) -> State {
        self.states[id as usize]
    }

    fn set_state(&mut self, id: Id, state: State) {
        self.states[id as usize] = state;
    }

    fn living_children(&self, id: Id) -> u32 {
        self.links.get(id as usize).map_or(0, |links| links.living_children)
    }

    fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        0..self.states.len() as Id
    }

    /// Adds `count` nodes at the top. Must be called before `begin`.
    pub(crate) fn add_many(&mut self, count: usize) {
        self.states.resize(self.states.len() + count, State::Open);
        self.living += count;
    }

    pub(crate) fn begin(&mut self) {
        if self.links.is_empty() {
            // No node has a parent.
            self.states.fill(State::Stopping);
            self.effects.push(Effect::Stop(0..self.states.len() as Id));
            return;
        }
        for id in self.ids() {
            if self.parent(id).is_none() {
                self.begin_node(id);
            }
        }
    }

    /// Notes that a node has processed the messages that it had accepted.
    pub(crate) fn settled(&mut self, id: Id) {
        match self.state(id) {
            State::Settling | State::KillPending => {
                self.set_state(id, State::Waiting);
                self.begin_children(id);
                self.stop_if_childless(id);
            }
            State::Killed => {
                // The driver no longer awaits its end. The stop makes it do so.
                self.push_stop(id);
                self.set_state(id, State::Killed);
            }
            State::Open | State::Waiting | State::Stopping | State::Ended => {}
        }
    }

    /// Notes that a node has ended. That may happen for any reason and at any time.
    pub(crate) fn ended(&mut self, id: Id) {
        if self.state(id) == State::Ended {
            return;
        }
        self.set_state(id, State::Ended);
        self.living -= 1;
        self.begin_children(id);
        if let Some(parent) = self.parent(id) {
            self.links[parent as usize].living_children -= 1;
            self.stop_if_childless(parent);
        }
    }

    /// Raises the urgency. It is never lowered.
    pub(crate) fn escalate(&mut self, urgency: Urgency) {
        if urgency <= self.urgency {
            return;
        }
        self.urgency = urgency;
        let all = urgency == Urgency::KillAll;
        // Selected before any node is killed, so that children which begin to stop in the loop
        // below are not killed before the next escalation.
        let working = self.ids().filter(|id| match self.state(*id) {
            State::Settling | State::Stopping => true,
            State::Open | State::Waiting | State::KillPending | State::Killed => all,
            State::Ended => false,
        });
        for id in working.collect::<Vec<_>>() {
            if !all && self.state(id) == State::Settling && self.living_children(id) > 0 {
                self.set_state(id, State::KillPending);
                self.begin_children(id);
            } else {
                self.kill(id);
            }
        }
    }

    /// Notes that a node that was sent a stop message after the deadline has work, so it is killed.
    pub(crate) fn has_work(&mut self, id: Id) {
        if self.state(id) == State::Stopping && self.urgency != Urgency::None {
            self.set_state(id, State::Killed);
            self.effects.push(Effect::Kill(id));
        }
    }

    /// Returns whether an effect was requested for the node, and further ones will be.
    pub(crate) fn is_partway(&self, id: Id) -> bool {
        matches!(self.state(id), State::Settling | State::Waiting | State::KillPending)
    }

    pub(crate) fn parent(&self, id: Id) -> Option<Id> {
        self.links.get(id as usize)?.parent
    }

    pub(crate) fn has_ended(&self, id: Id) -> bool {
        self.state(id) == State::Ended
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.living == 0
    }

    /// Takes the effects that were requested, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Settles the node if it has children, and stops it otherwise.
    fn begin_node(&mut self, id: Id) {
        if self.state(id) != State::Open {
            return;
        }
        if self.living_children(id) == 0 {
            self.stop(id);
        } else if self.urgency == Urgency::None {
            self.set_state(id, State::Settling);
            self.effects.push(Effect::Settle(id));
        } else {
            // There is no time to settle.
            self.set_state(id, State::Waiting);
            self.begin_children(id);
        }
    }

    fn begin_children(&mut self, id: Id) {
        let mut next = self.links.get_mut(id as usize).and_then(|links| links.last_child.take());
        while let Some(child) = next {
            next = self.links[child as usize].previous_sibling;
            self.begin_node(child);
        }
    }

    fn stop_if_childless(&mut self, id: Id) {
        if self.living_children(id) > 0 {
            return;
        }
        match self.state(id) {
            State::Waiting => self.stop(id),
            // A kill is enough: the driver has awaited its end since it was asked to settle.
            State::KillPending => {
                self.set_state(id, State::Killed);
                self.effects.push(Effect::Kill(id));
            }
            State::Open | State::Settling | State::Stopping | State::Killed | State::Ended => {}
        }
    }

    fn stop(&mut self, id: Id) {
        self.push_stop(id);
        if self.urgency == Urgency::KillAll {
            self.kill(id);
        }
    }

    fn kill(&mut self, id: Id) {
        if self.state(id) == State::Open {
            // The stop makes the driver await its end.
            self.push_stop(id);
        }
        self.effects.push(Effect::Kill(id));
    }

    /// Requests a stop. Adjacent siblings share one effect, because there may be very many.
    fn push_stop(&mut self, id: Id) {
        self.set_state(id, State::Stopping);
        let Self { links, effects, .. } = self;
        let parent = |id: Id| links.get(id as usize)?.parent;
        if let Some(Effect::Stop(ids)) = effects.last_mut()
            && parent(ids.start) == parent(id)
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
