//! Builds a plan. Each change is checked when it is made, and a rejected change has no effect.

mod build;

use std::collections::HashMap;
use std::time::Duration;

use super::error::PlanError;
use super::{Order, order};
use crate::names::PhaseNames;
use crate::phase::{Phase, PhaseSpec};

/// The maximum of all configurable times: one year. Adding a longer one to an instant may overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Builds a [`Plan`](super::Plan), starting with the built-in phases.
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing until it is built"]
pub struct PlanBuilder {
    phases: Vec<Declared>,
    index: HashMap<Phase, usize>,
    default_timeout: Duration,
    order: Order,
}

/// The changes of one phase in a configuration. `None` leaves a property unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PhaseChange {
    /// Replaces the dependencies of the phase.
    pub(crate) depends_on: Option<Vec<Phase>>,
    /// Adds dependencies to the phase.
    pub(crate) after: Vec<Phase>,
    pub(crate) before: Vec<Phase>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) recover: Option<bool>,
    pub(crate) enabled: Option<bool>,
}

#[derive(Clone, Debug)]
struct Declared {
    name: Phase,
    depends_on: Vec<usize>,
    timeout: Option<Duration>,
    recover: bool,
    enabled: bool,
    /// The changes in the configuration, which have priority over the code.
    configured: Option<PhaseChange>,
}

// === impl PlanBuilder ===

impl PlanBuilder {
    pub(super) fn new() -> Self {
        let slow = [
            Phase::CLUSTER_SHARDING_SHUTDOWN_REGION,
            Phase::CLUSTER_EXITING,
            Phase::ACTOR_SYSTEM_TERMINATE,
        ];
        let phases: Vec<Declared> = Phase::BUILT_IN
            .iter()
            .enumerate()
            .map(|(at, name)| Declared {
                name: name.clone(),
                depends_on: at.checked_sub(1).into_iter().collect(),
                timeout: slow.contains(name).then_some(Duration::from_secs(10)),
                recover: true,
                enabled: true,
                configured: None,
            })
            .collect();
        let index = phases.iter().enumerate().map(|(at, phase)| (phase.name.clone(), at)).collect();
        Self { phases, index, default_timeout: Duration::from_secs(5), order: Order::Dag }
    }

    /// Adds a phase.
    ///
    /// # Errors
    ///
    /// If the name is empty or already exists, a dependency is unknown, the timeout is zero or longer
    /// than one year, or the phase would close a cycle. The plan is unchanged then.
    pub fn add(&mut self, spec: PhaseSpec) -> Result<(), PlanError> {
        let PhaseSpec { name, after, before, timeout, recover, enabled } = spec;
        check_timeout(&name, timeout)?;
        if after.contains(&name) || before.contains(&name) {
            return Err(PlanError::Cycle { path: vec![name.clone(), name] });
        }
        if self.is_only_configured(&name) {
            return self.complete(&name, &after, &before, (timeout, recover, enabled));
        }
        self.check_new(&name)?;
        let depends_on = self.resolve(&name, &after)?;
        self.resolve(&name, &before)?;
        let new = Declared { name, depends_on, timeout, recover, enabled, configured: None };
        if before.is_empty() {
            // No phase waits for it, so it cannot be on a cycle.
            self.push(new);
            return Ok(());
        }
        let mut changed = self.clone();
        let at = changed.push(new);
        changed.connect(at, &[], &before)?;
        changed.check_order()?;
        *self = changed;
        Ok(())
    }

    /// Returns whether only the configuration declares the phase. Then the code may still add it.
    fn is_only_configured(&self, name: &Phase) -> bool {
        let known = self.index.get(name).map(|&at| &self.phases[at]);
        let built_in = Phase::BUILT_IN.contains(name);
        known.is_some_and(|phase| phase.configured.is_some()) && !built_in
    }

    /// Adds a phase that was configured before. The configured values have priority.
    fn complete(
        &mut self,
        name: &Phase,
        after: &[Phase],
        before: &[Phase],
        (timeout, recover, enabled): (Option<Duration>, bool, bool),
    ) -> Result<(), PlanError> {
        let mut changed = self.clone();
        let at = changed.position(name.as_str())?;
        changed.connect(at, after, before)?;
        let phase = &mut changed.phases[at];
        let configured = phase.configured.take().unwrap_or_default();
        phase.timeout = configured.timeout.or(timeout);
        phase.recover = configured.recover.unwrap_or(recover);
        phase.enabled = configured.enabled.unwrap_or(enabled);
        changed.check_order()?;
        *self = changed;
        Ok(())
    }

    /// Sets the timeout of phases that do not set one. Five seconds by default.
    ///
    /// # Errors
    ///
    /// If it is zero or longer than one year. The error names the first phase.
    pub fn set_default_timeout(&mut self, timeout: Duration) -> Result<(), PlanError> {
        check_timeout(&Phase::BEFORE_SERVICE_UNBIND, Some(timeout))?;
        self.default_timeout = timeout;
        Ok(())
    }

    /// Sets the timeout of a phase. Fails if the phase does not exist, or the timeout is zero or longer
    /// than one year.
    pub(crate) fn set_timeout(
        &mut self,
        phase: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<(), PlanError> {
        let at = self.position(phase.as_ref())?;
        check_timeout(&self.phases[at].name, Some(timeout))?;
        self.phases[at].timeout = Some(timeout);
        Ok(())
    }

    /// Sets whether phases that do not depend on each other run concurrently.
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// Changes and adds phases as configured. If one change is rejected, none is applied.
    pub(crate) fn apply<'a>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a Phase, &'a PhaseChange)> + Clone,
    ) -> Result<(), PlanError> {
        let mut changed = self.clone();
        // First adds all names, so that phases may refer to each other in any order.
        for (name, _) in changes.clone() {
            if !changed.index.contains_key(name) {
                changed.check_new(name)?;
                let (name, depends_on) = (name.clone(), Vec::new());
                changed.push(Declared {
                    name,
                    depends_on,
                    timeout: None,
                    recover: true,
                    enabled: true,
                    configured: None,
                });
            }
        }
        // Then replaces dependencies, and only then adds further ones.
        for (name, change) in changes.clone() {
            check_timeout(name, change.timeout)?;
            let at = changed.position(name.as_str())?;
            let replaced = change.depends_on.as_deref().map(|on| changed.resolve(name, on));
            let phase = &mut changed.phases[at];
            phase.configured = Some(change.clone());
            phase.timeout = change.timeout.or(phase.timeout);
            phase.recover = change.recover.unwrap_or(phase.recover);
            phase.enabled = change.enabled.unwrap_or(phase.enabled);
            if let Some(replaced) = replaced {
                phase.depends_on = replaced?;
            }
        }
        for (name, change) in changes {
            let at = changed.position(name.as_str())?;
            changed.connect(at, &change.after, &change.before)?;
        }
        changed.check_misspelt(self)?;
        changed.check_order()?;
        *self = changed;
        Ok(())
    }

    /// Makes the phase wait for the phases `after`, and the phases `before` wait for it.
    fn connect(&mut self, at: usize, after: &[Phase], before: &[Phase]) -> Result<(), PlanError> {
        let name = self.phases[at].name.clone();
        for on in self.resolve(&name, after)? {
            add_dependency(&mut self.phases[at].depends_on, on);
        }
        for needy in self.resolve(&name, before)? {
            add_dependency(&mut self.phases[needy].depends_on, at);
        }
        Ok(())
    }

    /// Returns an error if a new configured phase has no connection to others and is named almost like
    /// an existing one: that is a misspelt name.
    fn check_misspelt(&self, before: &Self) -> Result<(), PlanError> {
        let needed = |at: usize| self.phases.iter().any(|phase| phase.depends_on.contains(&at));
        for (at, phase) in self.phases.iter().enumerate().skip(before.phases.len()) {
            let known = before.phases.iter().map(|phase| phase.name.as_str());
            if phase.depends_on.is_empty()
                && !needed(at)
                && let Some(near) = crate::names::nearest(phase.name.as_str(), known)
            {
                let (phase, near) = (phase.name.clone(), Phase::new(near));
                return Err(PlanError::Misspelt { phase, near });
            }
        }
        Ok(())
    }

    pub(crate) fn position(&self, name: &str) -> Result<usize, PlanError> {
        self.index.get(name).copied().ok_or_else(|| PlanError::UnknownPhase {
            phase: None,
            name: Phase::new(name),
            known: self.known(),
        })
    }

    pub(crate) fn name(&self, at: usize) -> &Phase {
        &self.phases[at].name
    }

    pub(crate) fn len(&self) -> usize {
        self.phases.len()
    }

    /// Returns whether the phase drains admitted work and has no timeout of its own.
    pub(crate) fn is_open_ended(&self, at: usize) -> bool {
        let phase = &self.phases[at];
        phase.name == Phase::SERVICE_REQUESTS_DONE && phase.timeout.is_none()
    }

    pub(crate) fn timeout_of(&self, at: usize) -> Duration {
        self.phases[at].timeout.unwrap_or(self.default_timeout)
    }

    fn known(&self) -> PhaseNames {
        PhaseNames::new(self.phases.iter().map(|phase| phase.name.as_str()))
    }

    fn push(&mut self, phase: Declared) -> usize {
        let at = self.phases.len();
        self.index.insert(phase.name.clone(), at);
        self.phases.push(phase);
        at
    }

    fn check_new(&self, name: &Phase) -> Result<(), PlanError> {
        if name.as_str().trim().is_empty() {
            return Err(PlanError::EmptyName);
        }
        if self.index.contains_key(name) {
            return Err(PlanError::DuplicatePhase { phase: name.clone() });
        }
        Ok(())
    }

    fn resolve(&self, phase: &Phase, names: &[Phase]) -> Result<Vec<usize>, PlanError> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let at = self.index.get(name).copied().ok_or_else(|| PlanError::UnknownPhase {
                phase: Some(phase.clone()),
                name: name.clone(),
                known: self.known(),
            })?;
            add_dependency(&mut found, at);
        }
        Ok(found)
    }

    fn check_order(&self) -> Result<(), PlanError> {
        let name = |at: usize| self.phases[at].name.clone();
        match order::sort(&self.edges()) {
            Ok(_) => Ok(()),
            Err(cycle) => Err(PlanError::Cycle { path: cycle.into_iter().map(name).collect() }),
        }
    }
}

/// Adds a dependency, unless it is already there.
fn add_dependency(depends_on: &mut Vec<usize>, on: usize) {
    if !depends_on.contains(&on) {
        depends_on.push(on);
    }
}

fn check_timeout(phase: &Phase, timeout: Option<Duration>) -> Result<(), PlanError> {
    match timeout {
        Some(Duration::ZERO) => Err(PlanError::ZeroTimeout { phase: phase.clone() }),
        Some(timeout) if timeout > LONGEST => {
            Err(PlanError::TimeoutTooLong { phase: phase.clone() })
        }
        Some(_) | None => Ok(()),
    }
}
