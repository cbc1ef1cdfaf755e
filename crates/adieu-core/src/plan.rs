//! Phases and what each waits for, proved acyclic.
//!
//! A [`PlanBuilder`] is a plan being declared: every change to it is checked when it is made, and
//! a refused change leaves it as it was. A [`Plan`] is a plan proved: it knows its order, what
//! each phase waits for, and its critical path.

mod builder;
mod critical_path;
mod order;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use builder::{LONGEST, PhaseChange};
pub use builder::{PlanBuilder, PlanError};
pub use critical_path::CriticalPath;
pub(crate) use order::sort;
pub use view::{CriticalPathView, PhaseView, PlanView};

use crate::phase::Phase;

/// How long draining may take where no deadline is known and no timeout is set.
const DRAIN: Duration = Duration::from_secs(10);

/// Phases and their dependencies, proved acyclic.
///
/// The built-in phases are always there. `actor-system-terminate` waits for every phase that is not
/// declared to come after it, whether or not a dependency was declared.
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

/// A phase's place in one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PhaseId(pub(crate) usize);

/// Which share of the deadline a phase may spend: the earlier it is, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Gives way when time runs short.
    Early,
    /// `before-actor-system-terminate`, and what is between it and `actor-system-terminate`: may
    /// spend the reserve.
    Closing,
    /// `actor-system-terminate`, which is never skipped for lack of time.
    Actors,
    /// What is declared to come after `actor-system-terminate`.
    Last,
}

/// Whether phases that do not depend on each other run side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A phase starts as soon as everything it depends on is over.
    #[default]
    Dag,
    /// One phase after another; independent chains come out whole, one after the other.
    Sequential,
}

// === impl Plan ===

impl Plan {
    /// Starts from the built-in phases.
    pub fn builder() -> PlanBuilder {
        PlanBuilder::new()
    }

    /// The phases in an order in which each comes after all it waits for.
    #[must_use]
    pub fn order(&self) -> impl ExactSizeIterator<Item = &PlannedPhase> {
        self.order.iter().map(|&id| self.get(id))
    }

    /// The phase of this name.
    #[must_use]
    pub fn phase(&self, name: impl AsRef<str>) -> Option<&PlannedPhase> {
        self.id(name.as_ref()).map(|id| self.get(id))
    }

    /// The names of the phases that `phase` declares or is known to depend on.
    pub fn depends_on<'a>(&'a self, phase: &'a PlannedPhase) -> impl Iterator<Item = &'a Phase> {
        phase.depends_on.iter().map(|&id| &self.get(id).name)
    }

    /// Whether phases run one after another even where they do not depend on each other.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// The chain of phases that decides how long the shutdown can take, counting those phases
    /// for which `counts` says so and that are enabled.
    #[must_use]
    pub fn critical_path(&self, counts: impl Fn(&Phase) -> bool) -> CriticalPath {
        self.critical_path_with(|phase| counts(phase.name()).then(|| phase.timeout()))
    }

    /// The same, with phases that take as long as `takes` says, or do not count.
    #[must_use]
    pub fn critical_path_with(
        &self,
        takes: impl Fn(&PlannedPhase) -> Option<Duration>,
    ) -> CriticalPath {
        critical_path::of(self, |id| takes(self.get(id)))
    }

    /// The same, by place.
    pub(crate) fn critical_path_of(
        &self,
        takes: impl Fn(PhaseId) -> Option<Duration>,
    ) -> CriticalPath {
        critical_path::of(self, takes)
    }

    /// How long all takes at most that comes before this phase, and that comes after it.
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

    /// Everything that must be over before `id` can start.
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
    /// The phase's name.
    #[must_use]
    pub fn name(&self) -> &Phase {
        &self.name
    }

    /// How long it may take; at least so long if it is [open-ended](Self::is_open_ended).
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether it may take longer than its timeout, namely what the deadline leaves beyond the
    /// reserve and the worst case of the phases after it. So it is with
    /// [`Phase::SERVICE_REQUESTS_DONE`], unless its timeout has been set.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    /// How long it may take where no deadline is known: ten seconds if it is open-ended.
    #[must_use]
    pub fn timeout_without_deadline(&self) -> Duration {
        if self.open_ended { self.timeout.max(DRAIN) } else { self.timeout }
    }

    /// Whether the shutdown goes on when a task of this phase fails.
    #[must_use]
    pub fn recovers(&self) -> bool {
        self.recover
    }

    /// Whether it runs at all.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// What must be over before it starts: its dependencies or, in a sequential plan, the phase
    /// before it.
    pub(crate) fn waits_for(&self) -> &[PhaseId] {
        &self.waits_for
    }
}
