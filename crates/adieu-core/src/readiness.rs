//! Whether work should be sent here: one truth, derived, never set.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::status::Stage;

/// Whether work should be sent here, and if not, why.
///
/// It follows from how far start-up and shutdown are, from promises and checks, and from whether
/// somebody has cordoned the process; nobody can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Readiness {
    /// Start-up has not ended, or something that was promised is not there yet.
    Starting,
    /// Send work.
    Ready,
    /// Something that was promised has failed, or a check is failing.
    Unavailable,
    /// Somebody wants no work here for now.
    Cordoned,
    /// The shutdown has begun: what was admitted is finished.
    Draining,
    /// What was admitted is finished or cut; the rest is coming down.
    Stopping,
}

/// One promise or check, as a probe shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was promised, or is checked.
    pub name: Arc<str>,
    /// How it stands.
    pub state: CheckState,
    /// Why it has failed, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// How a promise or check stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckState {
    /// Not yet.
    Pending,
    /// Kept, or there.
    Ready,
    /// Broken, or not there.
    Failed,
}

/// What readiness follows from, besides the stage of the shutdown.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, in any combination")]
pub(crate) struct Facts {
    pub(crate) started: bool,
    pub(crate) cordoned: bool,
    /// The shutdown has begun, and nobody is to know yet.
    pub(crate) keeps_ready: bool,
    /// What was admitted is finished or cut.
    pub(crate) drained: bool,
    checks: BTreeMap<u64, Check>,
    /// Those for which nobody speaks any more.
    abandoned: Vec<u64>,
    next_check: u64,
}

// === impl Facts ===

impl Facts {
    pub(crate) fn expect(&mut self, name: Arc<str>) -> u64 {
        let id = self.next_check;
        self.next_check += 1;
        // Who speaks for it anew takes the place of who does not speak any more.
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

    /// Notes how it stands, and says how it stood before.
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

    /// Nobody speaks for it any more, and it is not there.
    pub(crate) fn abandon(&mut self, id: u64) {
        self.abandoned.push(id);
    }

    pub(crate) fn check(&self, id: u64) -> Option<&Check> {
        self.checks.get(&id)
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.values()
    }

    /// The one place in which readiness is decided.
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
    /// Whether work should be sent here.
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
    fn it_follows_from_every_combination_of_facts() {
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
