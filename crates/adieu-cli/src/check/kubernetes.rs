//! Kubernetes manifests: the documents of a file, and the pods that they describe.

mod budget;
mod container;
mod maps;
mod nodes;
mod others;
mod pod;
mod probes;
mod shape;

use super::input::Manifest;
use super::keys;
use super::place::{Finding, InputError, Level, Place};
use super::tree::Node;
use super::workload::Workload;
use maps::Maps;
use others::Others;
use shape::Shape;

/// No release has more.
const MOST_DOCUMENTS: usize = 10_000;

/// Lists in lists: no tool writes them, but they can be written.
const LISTS: usize = 4;

/// The annotation of documents that run while a release is made, and are not part of it.
const HELM_HOOK: &str = "helm.sh/hook";

/// A document, and its kind.
pub(super) struct Document<'a> {
    kind: String,
    at: Node<'a>,
}

/// Returns whether a document is one of these, and not of compose.
pub(crate) fn is_one(document: &Node<'_>) -> bool {
    document.get("kind").is_some() || document.get("apiVersion").is_some()
}

/// Adds the pods that the documents describe together. Documents without pods are listed as skipped.
pub(crate) fn read(
    documents: &[Node<'_>],
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let mut all = Vec::new();
    for document in documents {
        flatten(document, None, &mut all, LISTS)?;
    }
    let others = Others::of(&all);
    for document in &all {
        read_one(document, &all, &others, only, into)?;
    }
    Ok(())
}

/// Splits lists into their items. The items of a DeploymentList need no `kind`.
fn flatten<'a>(
    document: &Node<'a>,
    in_list_of: Option<&str>,
    all: &mut Vec<Document<'a>>,
    lists: usize,
) -> Result<(), InputError> {
    // An alias in a list stands for as much as it likes.
    if all.len() >= MOST_DOCUMENTS {
        let problem = format!("more than {MOST_DOCUMENTS} documents: give them file by file");
        return Err(document.error(problem));
    }
    let Some(kind) = document.text_of("kind").or(in_list_of) else {
        return Err(document.error("there is no kind: write one, such as Deployment"));
    };
    // A Template of OpenShift is a list whose values are filled in.
    let list = match kind {
        "Template" => Some("").zip(document.get("objects")),
        _ => kind.strip_suffix("List").zip(document.get("items")),
    };
    let Some((of, items)) = list else {
        all.push(Document { kind: kind.into(), at: document.clone() });
        return Ok(());
    };
    let Some(lists) = lists.checked_sub(1) else {
        return Err(document.error("lists in lists in lists: write them out"));
    };
    for item in items.items() {
        flatten(&item, Some(of).filter(|of| !of.is_empty()), all, lists)?;
    }
    Ok(())
}

fn read_one(
    document: &Document<'_>,
    all: &[Document<'_>],
    others: &Others,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let Document { kind, at } = document;
    let name = name_of(at);
    let shape = shape::of(kind, at);
    let to_pod = match &shape {
        Shape::Pod(to_pod) | Shape::Knative(to_pod) | Shape::CloudRun(to_pod) => *to_pod,
        Shape::Elsewhere(place) => {
            let target = at.find(&["spec", "workloadRef", "name"]);
            let target = target.as_ref().and_then(Node::text).unwrap_or_default();
            let is_it =
                |other: &&Document<'_>| other.kind == "Deployment" && name_of(&other.at) == target;
            if all.iter().any(|other| is_it(&other)) {
                into.skip(at.place(), format!("{kind} {name} (it runs Deployment {target})"));
                return Ok(());
            }
            let problem =
                format!("it runs the pods of Deployment {target}, which is not in this file");
            let advice = "give both in one file";
            return into.add(Workload::unknown(kind, &name, place.clone(), &problem, advice));
        }
        Shape::Unseen(place) => {
            let problem = format!("a {kind} runs containers by rules that are not known here");
            let advice = "check the pods that it makes: kubectl get pod NAME -o yaml | adieu check \
                          --manifest -";
            return into.add(Workload::unknown(kind, &name, place.clone(), &problem, advice));
        }
        Shape::Nothing => {
            into.skip(at.place(), format!("{kind} {name}"));
            return Ok(());
        }
    };
    if at.find(&["metadata", "annotations", HELM_HOOK]).is_some() && only.is_none() {
        let what = format!("{kind} {name} (a hook of Helm, which runs to its end)");
        into.skip(at.place(), what);
        return Ok(());
    }
    let pod = at.find(to_pod).and_then(|pod| Some((pod.get("spec")?, pod)));
    let Some((spec, pod)) = pod else {
        let key = [to_pod, &["spec"]].concat().join(".");
        return Err(at.error(format!("this {kind} has no {key}: there is no pod to judge")));
    };
    let unknown = unknown_keys(document, &shape);
    for mut workload in
        pod::read(document, &shape, [&pod, &spec], &Maps::of(at, all, others), only)?
    {
        workload.findings.extend(unknown.iter().cloned());
        workload.findings.extend(about_strategy(kind, at));
        workload.findings.extend(budget::forbids(&pod, at, all));
        workload.findings.extend(others.finding());
        into.add(workload)?;
    }
    Ok(())
}

/// Returns the findings about keys whose effect is not known.
fn unknown_keys(document: &Document<'_>, shape: &Shape) -> Vec<Finding> {
    let Document { kind, at } = document;
    if kind == "Job" && matches!(shape, Shape::CloudRun(_)) {
        return keys::unknown(at, &keys::kubernetes::CLOUD_RUN_JOB);
    }
    let table = keys::kubernetes::KINDS.iter().find(|(known, _)| known == kind);
    table.map(|(_, table)| keys::unknown(at, table)).unwrap_or_default()
}

fn name_of(document: &Node<'_>) -> String {
    let name = ["name", "generateName"].into_iter().find_map(|key| {
        document.find(&["metadata", key]).and_then(|name| name.text().map(str::to_owned))
    });
    name.unwrap_or_else(|| "without a name".into())
}

/// Returns the place that sets a single replica, if one does.
fn alone(kind: &str, document: &Node<'_>) -> Option<Place> {
    let replicas = document.find(&["spec", "replicas"]).filter(|_| !kind.ends_with("Job"))?;
    (replicas.text() == Some("1")).then(|| replicas.place())
}

/// Findings about the strategy that replaces old replicas.
fn about_strategy(kind: &str, document: &Node<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = |keys: &[&str]| document.find(keys).and_then(|at| Some((at.text()?, at.place())));
    if let Some(("Recreate", place)) =
        text(&["spec", "strategy", "type"]).filter(|_| kind == "Deployment")
    {
        let problem =
            "all replicas stop before the first new one starts: no replica serves meanwhile";
        let advice = "use RollingUpdate with maxUnavailable 0";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    let strategy = match kind {
        "Deployment" => "strategy",
        "DaemonSet" | "StatefulSet" => "updateStrategy",
        _ => return findings,
    };
    let Some((most, place)) = text(&["spec", strategy, "rollingUpdate", "maxUnavailable"]) else {
        return findings;
    };
    let replicas = text(&["spec", "replicas"]).and_then(|(text, _)| text.parse::<u64>().ok());
    let is_all = most == "100%"
        || most.parse().is_ok_and(|most: u64| most > 0 && replicas.is_some_and(|all| most >= all));
    let advice = "set maxUnavailable to 0 and maxSurge to 1";
    if is_all {
        let problem = "all replicas may stop at once: no replica serves meanwhile";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    } else if kind == "Deployment" && !["0", "0%"].contains(&most) {
        let problem = "old replicas stop before new ones are ready: fewer serve meanwhile";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    findings
}
