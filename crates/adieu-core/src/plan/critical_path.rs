//! Finds the chain of phases that determines how long a shutdown can take.

use std::time::Duration;

use super::{Phase, PhaseId, Plan};

/// The longest chain of phases, measured by their timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// The phases on it, in the order in which they run.
    pub phases: Vec<Phase>,
    /// The sum of their timeouts.
    pub worst_case: Duration,
}

/// Returns the longest time that the phases before `id` can take, and the longest that the phases
/// after it can take. `takes` is as in [`of`].
pub(super) fn around(
    plan: &Plan,
    id: PhaseId,
    takes: impl Fn(PhaseId) -> Option<Duration>,
) -> (Duration, Duration) {
    let takes = |id: PhaseId| {
        let takes = takes(id).filter(|_| plan.get(id).is_enabled());
        takes.unwrap_or(Duration::ZERO)
    };
    let longest = |all: &mut Duration, other: Duration| *all = (*all).max(other);
    // For each phase, the longest time until it can start, and from its end to the end of all.
    let mut before = vec![Duration::ZERO; plan.len()];
    for &id in plan.ordered_ids() {
        for &on in plan.get(id).waits_for() {
            let over = before[on.0].saturating_add(takes(on));
            longest(&mut before[id.0], over);
        }
    }
    let mut after = vec![Duration::ZERO; plan.len()];
    for &id in plan.ordered_ids().iter().rev() {
        for &on in plan.get(id).waits_for() {
            let rest = after[id.0].saturating_add(takes(id));
            longest(&mut after[on.0], rest);
        }
    }
    (before[id.0], after[id.0])
}

/// Returns the critical path. `takes` returns the maximum time of a phase, or `None` if the phase does
/// not count.
pub(super) fn of(plan: &Plan, takes: impl Fn(PhaseId) -> Option<Duration>) -> CriticalPath {
    // For each phase, the longest time until it is over and the phase before it on that path.
    let mut until = vec![Duration::ZERO; plan.len()];
    let mut from: Vec<Option<PhaseId>> = vec![None; plan.len()];
    let takes = |id: PhaseId| takes(id).filter(|_| plan.get(id).is_enabled());

    let mut end = None;
    for &id in plan.ordered_ids() {
        let phase = plan.get(id);
        from[id.0] = phase.waits_for().iter().copied().max_by_key(|before| until[before.0]);
        let before = from[id.0].map_or(Duration::ZERO, |before| until[before.0]);
        let own = takes(id).unwrap_or(Duration::ZERO);
        until[id.0] = before.saturating_add(own);
        if end.is_none_or(|end: PhaseId| until[end.0] <= until[id.0]) {
            end = Some(id);
        }
    }

    let worst_case = end.map_or(Duration::ZERO, |end| until[end.0]);
    let mut phases = Vec::new();
    while let Some(id) = end {
        if takes(id).is_some() {
            phases.push(plan.get(id).name().clone());
        }
        end = from[id.0];
    }
    phases.reverse();
    CriticalPath { phases, worst_case }
}
