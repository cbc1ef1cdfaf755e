//! The tasks that have been added and not yet started, by phase.
//!
//! Adding is a push. Cancelling leaves a hole, and holes are swept when they are as many as the
//! tasks, so that code which adds and cancels for ever does not grow.

use std::panic::Location;
use std::sync::Arc;

use crate::plan::PhaseId;
use crate::shield::drop_each_shielded;
use crate::task::{Describe, Job, RunsOn};
use crate::time::Duration;

#[derive(Default)]
pub(crate) struct Registry {
    phases: Vec<Shelf>,
    next_seq: u64,
}

/// A task that has been added and not started.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) describe: Option<Describe>,
    pub(crate) runs_on: RunsOn,
    pub(crate) blocking: bool,
    pub(crate) place: &'static Location<'static>,
    pub(crate) job: Box<dyn Job>,
}

#[derive(Default)]
struct Shelf {
    /// In the order of `seq`, so that one can be found by it.
    slots: Vec<Slot>,
    live: usize,
    /// The longest time that a task here may take, if each has one of its own.
    longest: Option<Duration>,
    started: bool,
    /// The tasks that were here when it started, in the order of `seq`.
    ran: Vec<u64>,
}

struct Slot {
    seq: u64,
    entry: Option<Entry>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop_each_shielded(self.clear());
    }
}

// === impl Registry ===

impl Registry {
    /// Makes room for a plan of this many phases.
    pub(crate) fn grow(&mut self, phases: usize) {
        if self.phases.len() < phases {
            self.phases.resize_with(phases, Shelf::default);
        }
    }

    /// Adds a task to a phase that has not started.
    pub(crate) fn add(&mut self, phase: PhaseId, entry: Entry) -> u64 {
        let shelf = &mut self.phases[phase.0];
        let seq = self.next_seq;
        self.next_seq += 1;
        shelf.longest = match (shelf.live, entry.timeout) {
            (0, timeout) => timeout,
            (_, timeout) => shelf.longest.zip(timeout).map(|(longest, own)| longest.max(own)),
        };
        shelf.slots.push(Slot { seq, entry: Some(entry) });
        shelf.live += 1;
        seq
    }

    /// Takes a pending task back. It is returned so that the caller can drop it outside the lock.
    pub(crate) fn cancel(&mut self, phase: PhaseId, seq: u64) -> Option<Entry> {
        let shelf = &mut self.phases[phase.0];
        let at = shelf.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        let entry = shelf.slots[at].entry.take()?;
        shelf.take_out(1);
        Some(entry)
    }

    /// Takes back every pending task of this name.
    pub(crate) fn cancel_named(&mut self, phase: PhaseId, name: &str) -> Vec<Entry> {
        let shelf = &mut self.phases[phase.0];
        let is_named = |entry: &mut Entry| &*entry.name == name;
        let taken: Vec<Entry> =
            shelf.slots.iter_mut().filter_map(|slot| slot.entry.take_if(is_named)).collect();
        shelf.take_out(taken.len());
        taken
    }

    /// Takes all tasks of a phase. None can be added to it from here on.
    pub(crate) fn start(&mut self, phase: PhaseId) -> Vec<Entry> {
        let shelf = &mut self.phases[phase.0];
        shelf.started = true;
        shelf.live = 0;
        let slots = std::mem::take(&mut shelf.slots);
        shelf.ran.extend(slots.iter().filter(|slot| slot.entry.is_some()).map(|slot| slot.seq));
        slots.into_iter().filter_map(|slot| slot.entry).collect()
    }

    /// Takes all that is left, to be dropped outside the lock.
    pub(crate) fn clear(&mut self) -> Vec<Entry> {
        (0..self.phases.len()).flat_map(|phase| self.start(PhaseId(phase))).collect()
    }

    pub(crate) fn has_started(&self, phase: PhaseId) -> bool {
        self.phases[phase.0].started
    }

    /// How long the tasks of a phase take at most, if the phase allows so much; `None` without any.
    pub(crate) fn takes(&self, phase: PhaseId, allowed: Duration) -> Option<Duration> {
        let shelf = &self.phases[phase.0];
        let takes = shelf.longest.map_or(allowed, |longest| longest.min(allowed));
        (shelf.live > 0).then_some(takes)
    }

    /// Whether a task that was added has been taken back: it is neither pending nor was it started.
    pub(crate) fn is_cancelled(&self, phase: PhaseId, seq: u64) -> bool {
        let shelf = &self.phases[phase.0];
        let slot = shelf.slots.binary_search_by_key(&seq, |slot| slot.seq);
        let is_pending = slot.is_ok_and(|at| shelf.slots[at].entry.is_some());
        !is_pending && shelf.ran.binary_search(&seq).is_err()
    }

    pub(crate) fn count(&self, phase: PhaseId) -> usize {
        self.phases[phase.0].live
    }

    pub(crate) fn pending(&self, phase: PhaseId) -> impl Iterator<Item = &Entry> {
        self.phases[phase.0].slots.iter().filter_map(|slot| slot.entry.as_ref())
    }
}

// === impl Shelf ===

impl Shelf {
    /// Counts tasks that were taken out, and sweeps the holes when they are as many as the tasks.
    fn take_out(&mut self, taken: usize) {
        self.live -= taken;
        if self.slots.len() > 2 * self.live {
            self.slots.retain(|slot| slot.entry.is_some());
        }
    }
}
