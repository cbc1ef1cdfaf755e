//! Readiness: whether routers should send work to this process. It is derived, never set.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::status::Stage;

/// Whether routers should send work to this process, and if not, why.
///
/// It is derived from start-up, promises, checks, cordons and the shutdown. No method sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Readiness {
    /// Start-up has not ended, or a promise or check is pending.
    Starting,
    /// The process accepts work.
    Ready,
    /// A promise was broken, or a check is failing.
    Unavailable,
    /// The process is cordoned: it refuses work until the cordon is removed.
    Cordoned,
    /// The shutdown has begun, and admitted work is finishing.
    Draining,
    /// Admitted work has finished or was cut off, and the later phases are running.
    Stopping,
}

/// One promise or check, for probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The name of the promise or check.
    pub name: Arc<str>,
    /// Its state.
    pub state: CheckState,
    /// Why it has failed, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// The state of a promise or check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckState {
    /// Not reported yet.
    Pending,
    /// The promise was kept, or the check succeeds.
    Ready,
    /// The promise was broken, or the check fails.
    Failed,
}

/// The facts from which readiness is derived, in addition to the stage of the shutdown.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "all combinations are possible")]
pub(crate) struct Facts {
    pub(crate) started: bool,
    pub(crate) cordoned: bool,
    /// The shutdown has begun, but the process stays ready for now (`unready-after`).
    pub(crate) keeps_ready: bool,
    /// Admitted work has finished or was cut off.
    pub(crate) drained: bool,
    checks: BTreeMap<u64, Check>,
    /// The failed checks whose handles were dropped.
    abandoned: Vec<u64>,
    next_check: u64,
}

// === impl Facts ===

impl Facts {
    pub(crate) fn expect(&mut self, name: Arc<str>) -> u64 {
        let id = self.next_check;
        self.next_check += 1;
        // A new check replaces an abandoned one of the same name.
        let checks = &mut self.checks;
        self.abandoned.retain(|old| {
            let is_replaced = checks.get(old).is_some_and(|check| check.name == name);
            if is_replaced {
                checks.remove(old);
            }
            !is_replaced
        });
        self.checks.insert(id, Check { name, state: CheckState::Pending, detail: None });
        id
    }

    /// Sets the state of a check, and returns its previous state.
    pub(crate) fn settle(
        &mut self,
        id: u64,
        state: CheckState,
        detail: Option<Arc<str>>,
    ) -> Option<CheckState> {
        let check = self.checks.get_mut(&id)?;
        check.detail = detail;
        Some(std::mem::replace(&mut check.state, state))
    }

    /// Marks a check whose handle was dropped, so that a new check of its name can replace it.
    pub(crate) fn abandon(&mut self, id: u64) {
        self.abandoned.push(id);
    }

    pub(crate) fn check(&self, id: u64) -> Option<&Check> {
        self.checks.get(&id)
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.values()
    }

    /// Derives the readiness. This is the only place that does so.
    pub(crate) fn readiness(&self, stage: Stage) -> Readiness {
        let any = |state| self.checks.values().any(|check| check.state == state);
        match stage {
            Stage::ShuttingDown if self.drained => return Readiness::Stopping,
            Stage::ShuttingDown if !self.keeps_ready => return Readiness::Draining,
            Stage::Over => return Readiness::Stopping,
            Stage::Up | Stage::ShuttingDown => {}
        }
        match () {
            () if any(CheckState::Failed) => Readiness::Unavailable,
            () if !self.started || any(CheckState::Pending) => Readiness::Starting,
            () if self.cordoned => Readiness::Cordoned,
            () => Readiness::Ready,
        }
    }
}

// === impl Readiness ===

impl Readiness {
    /// Returns whether routers should send work to this process.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unavailable => "unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_derived_from_every_combination_of_facts() {
        let stages = [Stage::Up, Stage::ShuttingDown, Stage::Over];
        let checks =
            [None, Some(CheckState::Pending), Some(CheckState::Ready), Some(CheckState::Failed)];
        for (stage, check) in
            stages.into_iter().flat_map(|stage| checks.map(|check| (stage, check)))
        {
            for bits in 0..8 {
                let mut facts = Facts {
                    started: bits & 1 > 0,
                    cordoned: bits & 2 > 0,
                    drained: bits & 4 > 0,
                    ..Facts::default()
                };
                if let Some(state) = check {
                    let id = facts.expect("x".into());
                    facts.settle(id, state, None);
                }
                let ready = facts.readiness(stage).is_ready();
                let expected = stage == Stage::Up
                    && facts.started
                    && !facts.cordoned
                    && matches!(check, None | Some(CheckState::Ready));
                assert_eq!(ready, expected, "{stage:?} {check:?} {bits:b}");
            }
        }
    }
}
