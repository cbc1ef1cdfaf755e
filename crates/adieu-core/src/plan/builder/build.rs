//! Turns the declarations into a plan: implied dependencies, order, ranks.

use std::collections::HashMap;

use super::super::{Order, PhaseId, Plan, PlannedPhase, Rank, order};
use super::PlanBuilder;

/// The indexes of `before-actor-system-terminate` and `actor-system-terminate` in every plan.
const BEFORE_ACTORS: usize = 10;
const ACTORS: usize = 11;

// === impl PlanBuilder ===

impl PlanBuilder {
    /// Builds the plan.
    #[must_use]
    pub fn build(&self) -> Plan {
        let edges = self.edges();
        // Every change was checked when it was made, so there is no cycle. If there were one, the
        // order of declaration would still be better than a panic in a shutdown.
        let sorted = order::sort(&edges).unwrap_or_else(|_| (0..edges.len()).collect());

        let (closing, last) = (self.from(BEFORE_ACTORS), self.from(ACTORS));
        let mut before = None;
        let mut waits_for = vec![Vec::new(); edges.len()];
        for &at in &sorted {
            waits_for[at] = match self.order {
                Order::Dag => ids(&edges[at]),
                Order::Sequential => before.into_iter().collect(),
            };
            before = Some(PhaseId(at));
        }

        let phases =
            self.phases.iter().zip(waits_for).enumerate().map(|(at, (phase, waits_for))| {
                PlannedPhase {
                    name: phase.name.clone(),
                    timeout: self.timeout_of(at),
                    open_ended: self.is_open_ended(at),
                    recover: phase.recover,
                    enabled: phase.enabled,
                    rank: match () {
                        () if at == ACTORS => Rank::Actors,
                        () if last[at] => Rank::Last,
                        () if closing[at] => Rank::Closing,
                        () => Rank::Early,
                    },
                    depends_on: ids(&edges[at]),
                    waits_for,
                }
            });
        Plan {
            phases: phases.collect(),
            order: ids(&sorted).into(),
            index: self
                .index
                .iter()
                .map(|(name, &at)| (name.clone(), PhaseId(at)))
                .collect::<HashMap<_, _>>()
                .into(),
            sequential: self.order == Order::Sequential,
        }
    }

    /// Returns the dependencies of each phase, including the implied ones: `actor-system-terminate`
    /// depends on every phase that does not come after it and that no other such phase waits for.
    ///
    /// This closes no cycle, because a phase that depends on `actor-system-terminate`, even indirectly,
    /// comes after it.
    pub(super) fn edges(&self) -> Vec<Vec<usize>> {
        let mut edges: Vec<Vec<usize>> =
            self.phases.iter().map(|phase| phase.depends_on.clone()).collect();
        let after = self.from(ACTORS);
        let mut needed = vec![false; edges.len()];
        for (at, depends_on) in edges.iter().enumerate() {
            if at == ACTORS || !after[at] {
                for &on in depends_on {
                    needed[on] = true;
                }
            }
        }
        let unneeded = (0..edges.len()).filter(|&at| !after[at] && !needed[at]);
        edges[ACTORS].extend(unneeded);
        edges
    }

    /// Marks the phase at this position, and all phases that are declared to come after it.
    fn from(&self, start: usize) -> Vec<bool> {
        let mut dependents = vec![Vec::new(); self.phases.len()];
        for (at, phase) in self.phases.iter().enumerate() {
            for &on in &phase.depends_on {
                dependents[on].push(at);
            }
        }
        let mut found = vec![false; self.phases.len()];
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut found[at], true) {
                open.extend(&dependents[at]);
            }
        }
        found
    }
}

fn ids(positions: &[usize]) -> Vec<PhaseId> {
    positions.iter().copied().map(PhaseId).collect()
}
