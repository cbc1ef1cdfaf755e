//! Disruption budgets that forbid every eviction: then nodes cannot be drained, and pods end by
//! force.

use super::Document;
use crate::check::place::{Finding, Level};
use crate::check::tree::Node;

pub(super) fn forbids(pod: &Node<'_>, owner: &Node<'_>, all: &[Document<'_>]) -> Option<Finding> {
    let replicas = owner.find(&["spec", "replicas"]);
    let replicas = replicas.and_then(|at| at.number().ok()).unwrap_or(1);
    let budgets = all.iter().filter(|document| document.kind == "PodDisruptionBudget");
    let budget = budgets.map(|document| &document.at).find(|budget| selects(budget, pod))?;
    let number =
        |key: &str| budget.find(&["spec", key]).and_then(|at| Some((at.text()?, at.place())));
    let place = match (number("maxUnavailable"), number("minAvailable")) {
        (Some(("0" | "0%", place)), _) => place,
        (_, Some(("100%", place))) => place,
        (_, Some((least, place))) if least.parse().is_ok_and(|least: u64| least >= replicas) => {
            place
        }
        _ => return None,
    };
    let problem = "forbids every eviction: a node cannot be drained, and pods end by force";
    let advice = "write maxUnavailable: 1, with two replicas or more";
    Some(Finding::new(Level::Warning, place, problem, advice))
}

/// Returns whether its labels are among those of the pod.
fn selects(budget: &Node<'_>, pod: &Node<'_>) -> bool {
    let wanted = budget.find(&["spec", "selector", "matchLabels"]).map(|labels| labels.entries());
    let wanted = wanted.unwrap_or_default();
    let has = |(name, value): &(&str, Node<'_>)| {
        pod.find(&["metadata", "labels", name]).is_some_and(|found| found.text() == value.text())
    };
    !wanted.is_empty() && wanted.iter().all(has)
}
