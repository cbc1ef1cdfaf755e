//! A plan as others read it: the shape that leaves the process.

use serde::{Deserialize, Serialize};

use super::Plan;

/// A [`Plan`] in the shape in which it is written as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// Every phase, in order.
    pub phases: Vec<PhaseView>,
    /// Their names, in order.
    pub order: Vec<String>,
    /// What decides how long the shutdown can take.
    pub critical_path: CriticalPathView,
}

/// One phase of a [`PlanView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseView {
    /// Its name.
    pub name: String,
    /// What it waits for.
    pub depends_on: Vec<String>,
    /// How long it may take.
    pub timeout_ms: u64,
    /// Whether it may take longer, as long as the deadline leaves time for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_ended: bool,
    /// Whether the shutdown goes on when it fails.
    pub recover: bool,
    /// Whether it runs at all.
    pub enabled: bool,
}

/// The critical path of a [`PlanView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPathView {
    /// The phases on it, in order.
    pub phases: Vec<String>,
    /// The sum of their timeouts.
    pub worst_case_ms: u64,
}

// === impl PlanView ===

impl From<&Plan> for PlanView {
    /// Shows the plan with every enabled phase counted, as if each had tasks.
    fn from(plan: &Plan) -> Self {
        let path = plan.critical_path(|_| true);
        Self {
            phases: plan
                .order()
                .map(|phase| PhaseView {
                    name: phase.name().to_string(),
                    depends_on: plan.depends_on(phase).map(ToString::to_string).collect(),
                    timeout_ms: millis(phase.timeout()),
                    open_ended: phase.is_open_ended(),
                    recover: phase.recovers(),
                    enabled: phase.is_enabled(),
                })
                .collect(),
            order: plan.order().map(|phase| phase.name().to_string()).collect(),
            critical_path: CriticalPathView {
                phases: path.phases.iter().map(ToString::to_string).collect(),
                worst_case_ms: millis(path.worst_case),
            },
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
