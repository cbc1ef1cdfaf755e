//! The nodes on which a pod runs, as far as they decide how it is stopped.

use std::time::Duration;

use crate::check::place::Level;
use crate::check::run_line;
use crate::check::tree::Node;
use crate::check::workload::{OtherStop, Workload};

/// Labels of nodes that the provider takes away, with their values, and the seconds from its notice.
const TAKEN_AWAY: [(&str, &str, u64); 9] = [
    ("cloud.google.com/gke-spot", "true", 15),
    ("cloud.google.com/gke-preemptible", "true", 15),
    ("cloud.google.com/gke-provisioning", "spot", 15),
    ("cloud.google.com/gke-provisioning", "preemptible", 15),
    ("cloud.google.com/compute-class", "autopilot-spot", 15),
    ("kubernetes.azure.com/scalesetpriority", "spot", 30),
    ("eks.amazonaws.com/capacityType", "SPOT", 120),
    ("karpenter.sh/capacity-type", "spot", 120),
    ("node.kubernetes.io/lifecycle", "spot", 120),
];

/// The labels with the operating system of a node.
const SYSTEMS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

/// A label that only nodes with Windows have, with its version.
const BUILD: &str = "node.kubernetes.io/windows-build";

pub(super) fn read(spec: &Node<'_>, workload: &mut Workload) {
    let mut labels = required(spec);
    let system = spec.find(&["os", "name"]);
    labels.extend(system.and_then(|at| Some((SYSTEMS[0].to_owned(), at.text()?.to_owned(), at))));
    let is_windows =
        |key: &str, value: &str| key == BUILD || SYSTEMS.contains(&key) && value == "windows";
    if let Some((.., at)) = labels.iter().find(|(key, value, _)| is_windows(key, value)) {
        workload.findings.push(run_line::on_windows(at.place()));
    }
    let class = spec.get("runtimeClassName");
    let is_of_windows = |at: &Node<'_>| {
        at.text().is_some_and(|name| ["windows", "wcow"].iter().any(|of| name.contains(of)))
    };
    if let Some(class) = class.filter(is_of_windows) {
        workload.findings.push(run_line::on_windows(class.place()));
    }
    labels.extend(tolerated(spec));
    for (key, value, at) in &labels {
        let known = TAKEN_AWAY.iter().find(|(label, of, _)| key == label && value == of);
        let Some((.., seconds)) = known else { continue };
        workload.other_stops.push(OtherStop {
            who: format!("the provider of {key} nodes"),
            limit: Duration::from_secs(*seconds),
            key: None,
            level: Level::Unknown,
            place: at.place(),
        });
    }
}

/// Returns the labels of nodes that are taken away and that keep other pods off, but not this one. A
/// toleration of every taint is for agents, which run on each node and serve nothing.
fn tolerated<'a>(spec: &Node<'a>) -> Vec<(String, String, Node<'a>)> {
    let tolerations = spec.get("tolerations").map(|all| all.items()).unwrap_or_default();
    let mut labels = Vec::new();
    for one in tolerations {
        let known = TAKEN_AWAY.iter().filter(|(label, ..)| one.text_of("key") == Some(label));
        let value = one.text_of("value");
        let known = known.filter(|(_, of, _)| value.is_none_or(|value| value == *of)).take(1);
        labels.extend(known.map(|(key, of, _)| ((*key).into(), (*of).into(), one.clone())));
    }
    labels
}

/// Returns the labels that a node must have, with their values.
fn required<'a>(spec: &Node<'a>) -> Vec<(String, String, Node<'a>)> {
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
            let Some(key) = rule.text_of("key") else { continue };
            let values = rule.get("values").map(|all| all.texts()).unwrap_or_default();
            let known = TAKEN_AWAY.iter().filter(|(label, ..)| *label == key);
            let possible: Vec<&str> = match rule.text_of("operator") {
                Some("In") => values.into_iter().flatten().collect(),
                Some("Exists" | "Gt" | "Lt") if key == BUILD => vec![""],
                Some("Exists") => known.map(|(_, value, _)| *value).take(1).collect(),
                // Nodes run Linux or Windows.
                Some("NotIn") if SYSTEMS.contains(&key) && values.contains(&Some("linux")) => {
                    vec!["windows"]
                }
                Some("NotIn") => {
                    let is_left = |value: &&str| !values.contains(&Some(*value));
                    let is_spot =
                        values.contains(&Some("on-demand")) || values.contains(&Some("standard"));
                    known.map(|(_, value, _)| *value).filter(is_left).filter(|_| is_spot).collect()
                }
                _ => Vec::new(),
            };
            let possible = possible.into_iter().map(|value| (key.to_owned(), value.to_owned()));
            labels.extend(possible.map(|(key, value)| (key, value, rule.clone())));
        }
    }
    labels
}
