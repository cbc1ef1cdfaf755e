//! The nodes on which a pod runs, as far as they decide how it is stopped.

use std::time::Duration;

use crate::check::place::{Finding, Level};
use crate::check::tree::At;
use crate::check::workload::{OtherStop, Workload};

/// Labels of nodes that the provider takes away, with their values, and the seconds from its notice.
const TAKEN_AWAY: [(&str, &str, u64); 6] = [
    ("cloud.google.com/gke-spot", "true", 15),
    ("cloud.google.com/gke-preemptible", "true", 15),
    ("kubernetes.azure.com/scalesetpriority", "spot", 30),
    ("eks.amazonaws.com/capacityType", "SPOT", 120),
    ("karpenter.sh/capacity-type", "spot", 120),
    ("node.kubernetes.io/lifecycle", "spot", 120),
];

const SYSTEM: &str = "kubernetes.io/os";

pub(super) fn read(spec: &At<'_>, workload: &mut Workload) {
    let mut labels = required(spec);
    let system = spec.find(&["os", "name"]);
    labels.extend(system.and_then(|at| Some((SYSTEM.to_owned(), at.text()?.to_owned(), at))));
    if let Some((.., at)) =
        labels.iter().find(|(key, value, _)| key == SYSTEM && value == "windows")
    {
        let problem = "Windows has no SIGTERM: how the process is stopped cannot be seen here";
        let advice = "run it on Linux";
        workload.findings.push(Finding::new(Level::Unknown, at.place(), problem, advice));
    }
    for (key, value, at) in &labels {
        let known = TAKEN_AWAY.iter().find(|(label, of, _)| key == label && value == of);
        let Some((.., seconds)) = known else { continue };
        workload.other_stops.push(OtherStop {
            who: format!("the provider of {key} nodes"),
            limit: Duration::from_secs(*seconds),
            variable: None,
            level: Level::Unknown,
            place: at.place(),
        });
    }
}

/// Returns the labels that a node must have, with their values.
fn required<'a>(spec: &At<'a>) -> Vec<(String, String, At<'a>)> {
    let mut labels = Vec::new();
    let selected = spec.get("nodeSelector").map(|all| all.entries()).unwrap_or_default();
    for (key, at) in selected {
        labels.extend(at.text().map(|value| (key.to_owned(), value.to_owned(), at.clone())));
    }
    let terms = [
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ];
    let terms = spec.find(&terms).map(|all| all.items()).unwrap_or_default();
    for term in terms {
        for rule in term.get("matchExpressions").map(|all| all.items()).unwrap_or_default() {
            let Some(key) = rule.text_of("key").filter(|_| rule.text_of("operator") == Some("In"))
            else {
                continue;
            };
            for value in rule.get("values").map(|all| all.items()).unwrap_or_default() {
                let text = value.text().unwrap_or_default().to_owned();
                labels.push((key.to_owned(), text, rule.clone()));
            }
        }
    }
    labels
}
