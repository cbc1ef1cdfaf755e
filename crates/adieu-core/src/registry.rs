//! The tasks that have been added and have not started, by phase.
//!
//! Adding pushes a slot. Cancelling empties a slot, and empty slots are removed when there are as
//! many as tasks, so that the memory of code that adds and cancels repeatedly stays bounded.

use std::panic::Location;
use std::sync::Arc;

use crate::plan::PhaseId;
use crate::shield::drop_each_shielded;
use crate::task::{Describe, Job, RunsOn};
use crate::time::Duration;

#[derive(Default)]
pub(crate) struct Registry {
    phases: Vec<PhaseTasks>,
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
struct PhaseTasks {
    /// Sorted by `seq`, for binary search.
    slots: Vec<Slot>,
    live: usize,
    /// The longest timeout of a task; `None` if a task has no timeout of its own.
    longest: Option<Duration>,
    started: bool,
    /// The `seq` of each task that was started, sorted.
    ran: Vec<u64>,
}

struct Slot {
    seq: u64,
    entry: Option<Entry>,
}

/// The tasks of a phase that starts. They stay in the memory to which they were added: moving many
/// thousands of tasks costs as much as spawning them.
#[derive(Default)]
pub(crate) struct Started(Vec<Slot>);

impl Drop for Registry {
    fn drop(&mut self) {
        drop_each_shielded(self.clear());
    }
}

// === impl Registry ===

impl Registry {
    /// Adds phases until there are this many.
    pub(crate) fn grow(&mut self, phases: usize) {
        if self.phases.len() < phases {
            self.phases.resize_with(phases, PhaseTasks::default);
        }
    }

    /// Adds a task to a phase that has not started.
    pub(crate) fn add(&mut self, phase: PhaseId, entry: Entry) -> u64 {
        let tasks = &mut self.phases[phase.0];
        let seq = self.next_seq;
        self.next_seq += 1;
        tasks.longest = match (tasks.live, entry.timeout) {
            (0, timeout) => timeout,
            (_, timeout) => tasks.longest.zip(timeout).map(|(longest, own)| longest.max(own)),
        };
        tasks.slots.push(Slot { seq, entry: Some(entry) });
        tasks.live += 1;
        seq
    }

    /// Removes a pending task. Returns it so that the caller can drop it outside the lock.
    pub(crate) fn cancel(&mut self, phase: PhaseId, seq: u64) -> Option<Entry> {
        let tasks = &mut self.phases[phase.0];
        let at = tasks.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        let entry = tasks.slots[at].entry.take()?;
        tasks.count_removed(1);
        Some(entry)
    }

    /// Removes every pending task of this name.
    pub(crate) fn cancel_named(&mut self, phase: PhaseId, name: &str) -> Vec<Entry> {
        let tasks = &mut self.phases[phase.0];
        let is_named = |entry: &mut Entry| &*entry.name == name;
        let taken: Vec<Entry> =
            tasks.slots.iter_mut().filter_map(|slot| slot.entry.take_if(is_named)).collect();
        tasks.count_removed(taken.len());
        taken
    }

    /// Removes all tasks of a phase and marks it as started. No task can be added to it afterwards.
    pub(crate) fn start(&mut self, phase: PhaseId) -> Started {
        let tasks = &mut self.phases[phase.0];
        tasks.started = true;
        tasks.live = 0;
        let mut slots = std::mem::take(&mut tasks.slots);
        slots.retain(|slot| slot.entry.is_some());
        tasks.ran.extend(slots.iter().map(|slot| slot.seq));
        Started(slots)
    }

    /// Removes all remaining tasks. The caller drops them outside the lock.
    pub(crate) fn clear(&mut self) -> Vec<Entry> {
        (0..self.phases.len()).flat_map(|phase| self.start(PhaseId(phase)).into_entries()).collect()
    }

    pub(crate) fn has_started(&self, phase: PhaseId) -> bool {
        self.phases[phase.0].started
    }

    /// Returns how long the tasks of a phase may take, at most `allowed`; `None` if it has no task.
    pub(crate) fn takes(&self, phase: PhaseId, allowed: Duration) -> Option<Duration> {
        let tasks = &self.phases[phase.0];
        let takes = tasks.longest.map_or(allowed, |longest| longest.min(allowed));
        (tasks.live > 0).then_some(takes)
    }

    /// Returns whether a task was cancelled: it is neither pending nor was it started.
    pub(crate) fn is_cancelled(&self, phase: PhaseId, seq: u64) -> bool {
        let tasks = &self.phases[phase.0];
        let slot = tasks.slots.binary_search_by_key(&seq, |slot| slot.seq);
        let is_pending = slot.is_ok_and(|at| tasks.slots[at].entry.is_some());
        !is_pending && tasks.ran.binary_search(&seq).is_err()
    }

    pub(crate) fn count(&self, phase: PhaseId) -> usize {
        self.phases[phase.0].live
    }

    pub(crate) fn pending(&self, phase: PhaseId) -> impl Iterator<Item = &Entry> {
        self.phases[phase.0].slots.iter().filter_map(|slot| slot.entry.as_ref())
    }
}

// === impl Started ===

impl Started {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut().filter_map(|slot| slot.entry.as_mut())
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.0.into_iter().filter_map(|slot| slot.entry)
    }
}

// === impl PhaseTasks ===

impl PhaseTasks {
    /// Counts removed tasks, and removes the empty slots when there are as many as tasks.
    fn count_removed(&mut self, taken: usize) {
        self.live -= taken;
        if self.slots.len() > 2 * self.live {
            self.slots.retain(|slot| slot.entry.is_some());
        }
    }
}
