//! Arranges steps in waves, or returns why that is impossible.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::error::AssembleError;
use super::step::Step;
use crate::budget::GRACE;
use crate::names::nearest;
use crate::plan::{LONGEST, sort};
use crate::time::Duration;

/// The waves of a lifecycle, and how long each may take.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) ids: Vec<Arc<str>>,
    /// In the order in which they start; within a wave by priority.
    pub(super) waves: Vec<Vec<usize>>,
    wave_of: Vec<usize>,
    pub(super) start_timeouts: Vec<Duration>,
    pub(super) stop_timeouts: Vec<Duration>,
}

// === impl Graph ===

impl Graph {
    /// Puts each step into the earliest wave after all its dependencies. If steps start one at a time,
    /// each gets a wave of its own, in that order.
    pub(super) fn assemble(steps: &[Step], one_at_a_time: bool) -> Result<Self, AssembleError> {
        let edges = edges(steps)?;
        let sorted = sort(&edges).map_err(|cycle| {
            let path = cycle.iter().map(|&at| Arc::clone(&steps[at].id)).collect();
            AssembleError::Cycle { path }
        })?;
        let mut wave_of = vec![0; steps.len()];
        for at in sorted {
            wave_of[at] = edges[at].iter().map(|&on| wave_of[on] + 1).max().unwrap_or(0);
        }
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|&at| (wave_of[at], Reverse(steps[at].priority)));
        if one_at_a_time {
            for (wave, &at) in order.iter().enumerate() {
                wave_of[at] = wave;
            }
        }
        let waves = order.chunk_by(|&a, &b| wave_of[a] == wave_of[b]).map(<[_]>::to_vec).collect();
        Ok(Self {
            ids: steps.iter().map(|step| Arc::clone(&step.id)).collect(),
            waves,
            wave_of,
            start_timeouts: steps.iter().map(|step| step.start_timeout).collect(),
            stop_timeouts: steps.iter().map(|step| step.stop_timeout).collect(),
        })
    }

    /// Returns the maximum time to start all steps.
    pub(super) fn start_budget(&self) -> Duration {
        let longest = |wave: &Vec<usize>| wave.iter().map(|&step| self.start_timeouts[step]).max();
        self.waves.iter().filter_map(longest).sum()
    }

    /// Returns the maximum time to stop the steps for which `is` returns true.
    pub(super) fn stop_budget(&self, is: impl Fn(usize) -> bool) -> Duration {
        self.stopping(0, is)
    }

    /// Returns the maximum time until the steps of later waves have stopped for which `is` returns
    /// true.
    pub(super) fn before_stop(&self, step: usize, is: impl Fn(usize) -> bool) -> Duration {
        self.stopping(self.wave_of[step] + 1, is)
    }

    /// Returns the maximum time until a step has stopped.
    pub(super) fn until_stopped(&self, step: usize) -> Duration {
        self.stopping(self.wave_of[step], |_| true)
    }

    /// Returns the steps that are stopped before this one.
    pub(super) fn after(&self, step: usize) -> impl Iterator<Item = usize> {
        self.waves[self.wave_of[step] + 1..].iter().flatten().copied()
    }

    /// Returns the maximum time to stop the waves from `from` on. A wave that hangs takes its timeout
    /// and two graces: one until it is aborted, one until it is abandoned.
    fn stopping(&self, from: usize, is: impl Fn(usize) -> bool) -> Duration {
        let longest = |wave: &Vec<usize>| {
            let counted = wave.iter().filter(|&&step| is(step));
            counted.map(|&step| self.stop_timeouts[step] + 2 * GRACE).max()
        };
        self.waves[from..].iter().filter_map(longest).sum()
    }
}

/// Returns the dependencies of each step.
fn edges(steps: &[Step]) -> Result<Vec<Vec<usize>>, AssembleError> {
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    let mut providers: HashMap<&str, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        check(step)?;
        if by_id.insert(&step.id, at).is_some() {
            return Err(AssembleError::DuplicateId { step: Arc::clone(&step.id) });
        }
        for capability in &step.provides {
            if let Some(other) = providers.insert(capability, at) {
                return Err(AssembleError::ProvidedTwice {
                    capability: Arc::clone(capability),
                    by: [Arc::clone(&steps[other].id), Arc::clone(&step.id)],
                });
            }
        }
    }
    let mut edges = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for capability in &step.requires {
            match providers.get(&**capability) {
                // A step may require a capability that it provides itself.
                Some(&on) if on == at => {}
                Some(&on) => edges[at].push(on),
                None => {
                    return Err(AssembleError::Unmet {
                        step: Arc::clone(&step.id),
                        capability: Arc::clone(capability),
                        near: near(capability, providers.keys()),
                    });
                }
            }
        }
        for name in &step.depends_on {
            match by_id.get(&**name) {
                Some(&on) => edges[at].push(on),
                None => {
                    return Err(AssembleError::Unknown {
                        step: Arc::clone(&step.id),
                        depends_on: Arc::clone(name),
                        near: near(name, by_id.keys()),
                    });
                }
            }
        }
    }
    Ok(edges)
}

/// Returns the most similar name. The names are sorted, so that the result is deterministic.
fn near<'a>(wanted: &str, known: impl Iterator<Item = &'a &'a str>) -> Option<Arc<str>> {
    let mut known: Vec<&str> = known.copied().collect();
    known.sort_unstable();
    nearest(wanted, known).map(Into::into)
}

fn check(step: &Step) -> Result<(), AssembleError> {
    if step.id.trim().is_empty() {
        return Err(AssembleError::EmptyId);
    }
    if let Some(why) = &step.refused {
        return Err(AssembleError::Refused { step: Arc::clone(&step.id), why: Arc::clone(why) });
    }
    for timeout in [step.start_timeout, step.stop_timeout] {
        if timeout.is_zero() {
            return Err(AssembleError::ZeroTimeout { step: Arc::clone(&step.id) });
        }
        if timeout > LONGEST {
            return Err(AssembleError::TimeoutTooLong { step: Arc::clone(&step.id) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(edges: &[Vec<usize>], by_capability: bool) -> Vec<Step> {
        let step = |(at, on): (usize, &Vec<usize>)| {
            let step = Step::new(format!("s{at}")).provides(format!("c{at}"));
            on.iter().fold(step, |step, on| {
                if by_capability {
                    step.requires(format!("c{on}"))
                } else {
                    step.depends_on(format!("s{on}"))
                }
            })
        };
        edges.iter().enumerate().map(step).collect()
    }

    proptest! {
        /// Any graph, with or without cycles.
        #[test]
        fn waves_respect_dependencies_and_a_reported_cycle_is_one(
            edges in prop::collection::vec(prop::collection::vec(0..12usize, 0..3), 1..12),
            by_capability: bool,
            one_at_a_time: bool,
            priorities in prop::collection::vec(-2..3i32, 12),
        ) {
            let count = edges.len();
            let edges: Vec<Vec<usize>> =
                edges.iter().map(|on| on.iter().map(|on| on % count).collect()).collect();
            let steps: Vec<Step> = steps(&edges, by_capability)
                .into_iter()
                .zip(priorities)
                .map(|(step, priority)| step.priority(priority))
                .collect();
            match Graph::assemble(&steps, one_at_a_time) {
                Ok(graph) => {
                    let mut seen: Vec<usize> = graph.waves.concat();
                    seen.sort_unstable();
                    prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
                    for (at, on) in edges.iter().enumerate() {
                        for &on in on.iter().filter(|&&on| on != at) {
                            prop_assert!(graph.wave_of[on] < graph.wave_of[at]);
                        }
                        // As early as possible.
                        let earliest = on.iter().filter(|&&on| on != at);
                        let earliest = earliest.map(|&on| graph.wave_of[on] + 1).max();
                        let is_earliest = graph.wave_of[at] == earliest.unwrap_or(0);
                        prop_assert!(one_at_a_time || is_earliest);
                    }
                    for wave in &graph.waves {
                        prop_assert!(!one_at_a_time || wave.len() == 1);
                        prop_assert!(wave.is_sorted_by_key(|&at| Reverse(steps[at].priority)));
                    }
                }
                Err(AssembleError::Cycle { path }) => {
                    prop_assert_eq!(path.first(), path.last());
                    for pair in path.windows(2) {
                        let number = |id: &str| id[1..].parse::<usize>().unwrap();
                        prop_assert!(edges[number(&pair[0])].contains(&number(&pair[1])));
                    }
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
