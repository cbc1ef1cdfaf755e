//! The JSON form of a plan.

use serde::{Deserialize, Serialize};

use super::Plan;

/// The JSON form of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// Every phase, in order.
    pub phases: Vec<PhaseView>,
    /// Their names, in order.
    pub order: Vec<String>,
    /// The phases that determine how long the shutdown can take.
    pub critical_path: CriticalPathView,
}

/// One phase of a [`PlanView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseView {
    /// Its name.
    pub name: String,
    /// The phases that it depends on.
    pub depends_on: Vec<String>,
    /// How long it may take.
    pub timeout_ms: u64,
    /// Whether it may take longer if the deadline leaves time for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_ended: bool,
    /// Whether the shutdown continues when it fails.
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
    /// Converts the plan. Every enabled phase counts, as if each had tasks.
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
