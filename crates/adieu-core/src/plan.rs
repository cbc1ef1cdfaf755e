//! The graph of phases.
//!
//! A [`PlanBuilder`] checks every change when it is made; a rejected change has no effect. A
//! [`Plan`] is acyclic. It contains the order of its phases, their dependencies, and its critical
//! path.

mod builder;
mod critical_path;
mod error;
mod order;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use builder::PlanBuilder;
pub(crate) use builder::{LONGEST, PhaseChange};
pub use critical_path::CriticalPath;
pub use error::PlanError;
pub(crate) use order::sort;
pub use view::{CriticalPathView, PhaseView, PlanView};

use crate::phase::Phase;

/// How long draining may take if no deadline is known and no timeout is set.
const DRAIN: Duration = Duration::from_secs(10);

/// Phases and their dependencies, without cycles.
///
/// A plan always contains the built-in phases. `actor-system-terminate` waits for every phase that is
/// not declared to come after it, even without a declared dependency.
///
/// ```
/// use adieu_core::{Phase, PhaseSpec, Plan};
///
/// let mut plan = Plan::builder();
/// plan.add(PhaseSpec::new("flush-metrics").after(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE))?;
/// let plan = plan.build();
///
/// let order: Vec<_> = plan.order().map(|phase| phase.name().as_str()).collect();
/// assert_eq!(order[11..], ["flush-metrics", "actor-system-terminate", "close-resources"]);
/// # Ok::<(), adieu_core::PlanError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    phases: Arc<[PlannedPhase]>,
    order: Arc<[PhaseId]>,
    index: Arc<HashMap<Phase, PhaseId>>,
    sequential: bool,
}

/// One phase of a [`Plan`].
#[derive(Clone, Debug)]
pub struct PlannedPhase {
    name: Phase,
    timeout: Duration,
    open_ended: bool,
    recover: bool,
    enabled: bool,
    rank: Rank,
    depends_on: Vec<PhaseId>,
    waits_for: Vec<PhaseId>,
}

/// The index of a phase in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PhaseId(pub(crate) usize);

/// The part of the time before the deadline that a phase may spend. Earlier ranks may spend less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// May not spend the reserve, and is cut or skipped when there is little time.
    Early,
    /// `before-actor-system-terminate`, and the phases between it and `actor-system-terminate`. They
    /// may spend the reserve.
    Closing,
    /// `actor-system-terminate`, which is never skipped for lack of time.
    Actors,
    /// The phases that are declared to come after `actor-system-terminate`.
    Last,
}

/// Whether phases that do not depend on each other run concurrently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A phase starts as soon as all its dependencies are over.
    #[default]
    Dag,
    /// One phase runs after another. Independent chains are not interleaved.
    Sequential,
}

// === impl Plan ===

impl Plan {
    /// Returns a builder with the built-in phases.
    pub fn builder() -> PlanBuilder {
        PlanBuilder::new()
    }

    /// Returns the phases in an order in which each comes after its dependencies.
    #[must_use]
    pub fn order(&self) -> impl ExactSizeIterator<Item = &PlannedPhase> {
        self.order.iter().map(|&id| self.get(id))
    }

    /// Returns the phase with this name.
    #[must_use]
    pub fn phase(&self, name: impl AsRef<str>) -> Option<&PlannedPhase> {
        self.id(name.as_ref()).map(|id| self.get(id))
    }

    /// Returns the names of the phases that `phase` depends on, declared or implied.
    pub fn depends_on<'a>(&'a self, phase: &'a PlannedPhase) -> impl Iterator<Item = &'a Phase> {
        phase.depends_on.iter().map(|&id| &self.get(id).name)
    }

    /// Returns whether phases run one after another even if they do not depend on each other.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Returns the chain of phases that determines how long the shutdown can take. It counts the
    /// enabled phases for which `counts` returns true.
    #[must_use]
    pub fn critical_path(&self, counts: impl Fn(&Phase) -> bool) -> CriticalPath {
        self.critical_path_with(|phase| counts(phase.name()).then(|| phase.timeout()))
    }

    /// Returns the critical path if phases take as long as `takes` returns. A phase for which it
    /// returns `None` does not count.
    #[must_use]
    pub fn critical_path_with(
        &self,
        takes: impl Fn(&PlannedPhase) -> Option<Duration>,
    ) -> CriticalPath {
        critical_path::of(self, |id| takes(self.get(id)))
    }

    /// Does the same as [`Plan::critical_path_with`], by index.
    pub(crate) fn critical_path_of(
        &self,
        takes: impl Fn(PhaseId) -> Option<Duration>,
    ) -> CriticalPath {
        critical_path::of(self, takes)
    }

    /// Returns how long all phases before this one take at most, and all phases after it.
    pub(crate) fn around(
        &self,
        id: PhaseId,
        takes: impl Fn(PhaseId) -> Option<Duration>,
    ) -> (Duration, Duration) {
        critical_path::around(self, id, takes)
    }

    pub(crate) fn id(&self, name: &str) -> Option<PhaseId> {
        self.index.get(name).copied()
    }

    pub(crate) fn get(&self, id: PhaseId) -> &PlannedPhase {
        &self.phases[id.0]
    }

    pub(crate) fn len(&self) -> usize {
        self.phases.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PhaseId> + use<> {
        (0..self.phases.len()).map(PhaseId)
    }

    pub(crate) fn ordered_ids(&self) -> &[PhaseId] {
        &self.order
    }

    /// Marks all phases that must be over before `id` can start.
    pub(crate) fn ancestors(&self, id: PhaseId) -> Vec<bool> {
        let mut found = vec![false; self.phases.len()];
        let mut open = self.get(id).waits_for.clone();
        while let Some(next) = open.pop() {
            if !std::mem::replace(&mut found[next.0], true) {
                open.extend(&self.get(next).waits_for);
            }
        }
        found
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::builder().build()
    }
}

// === impl PlannedPhase ===

impl PlannedPhase {
    /// Returns the name of the phase.
    #[must_use]
    pub fn name(&self) -> &Phase {
        &self.name
    }

    /// Returns how long the phase may take. An [open-ended](Self::is_open_ended) phase has at least
    /// this time.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether the phase may take longer than its timeout: the time that the deadline leaves
    /// beyond the reserve and the worst case of the later phases.
    ///
    /// Only [`Phase::SERVICE_REQUESTS_DONE`] is open-ended, unless its timeout is set.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    /// Returns how long the phase may take if no deadline is known: at least ten seconds if it is
    /// open-ended.
    #[must_use]
    pub fn timeout_without_deadline(&self) -> Duration {
        if self.open_ended { self.timeout.max(DRAIN) } else { self.timeout }
    }

    /// Returns whether the shutdown continues when a task of this phase fails.
    #[must_use]
    pub fn recovers(&self) -> bool {
        self.recover
    }

    /// Returns whether the phase runs at all.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the phases that must be over before this one starts: its dependencies or, in a
    /// sequential plan, the phase before it.
    pub(crate) fn waits_for(&self) -> &[PhaseId] {
        &self.waits_for
    }
}
