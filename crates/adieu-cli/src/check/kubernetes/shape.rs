//! Finds the pod in each kind of document, and the platform that stops it.

use crate::check::place::Place;
use crate::check::tree::Node;

/// The kind of a document, as far as stopping is concerned.
pub(super) enum Shape {
    /// A pod, or something that makes pods of a template at this path.
    Pod(&'static [&'static str]),
    /// A revision of Knative: its grace period is its request timeout.
    Knative(&'static [&'static str]),
    /// The same on Cloud Run, which always waits ten seconds.
    CloudRun(&'static [&'static str]),
    /// It runs the pods of another document, which this place names.
    Elsewhere(Place),
    /// It runs containers in a way that is not known here.
    Unseen(Place),
    /// It runs nothing.
    Nothing,
}

/// Keys under which kinds that are not known here may keep their containers.
const CONTAINERS: [&str; 8] = [
    "containers",
    "container",
    "podTemplate",
    "podSpec",
    "jobTemplate",
    "workloadRef",
    "terminationGracePeriodSeconds",
    "initContainers",
];

/// Kinds that make pods of `spec.template`, and stop them as a Deployment does.
const LIKE_DEPLOYMENT: [&str; 9] = [
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "Rollout",
    "DeploymentConfig",
    "CloneSet",
];

/// How deep they are searched for.
const DEPTH: usize = 6;

const TEMPLATE: &[&str] = &["spec", "template"];

pub(super) fn of(kind: &str, document: &Node<'_>) -> Shape {
    let api = document.text_of("apiVersion").unwrap_or_default();
    let is_knative = api.starts_with("serving.knative.dev/");
    let is_cloud_run =
        api.starts_with("run.googleapis.com/") || is_knative && is_cloud_run(document);
    let has_template = document.find(&["spec", "template", "spec", "containers"]).is_some();
    match kind {
        "Job" if is_cloud_run => Shape::CloudRun(&["spec", "template", "spec", "template"]),
        "Service" | "Configuration" | "WorkerPool" if is_cloud_run => Shape::CloudRun(TEMPLATE),
        "Revision" if is_cloud_run => Shape::CloudRun(&[]),
        "Service" | "Configuration" if is_knative => Shape::Knative(TEMPLATE),
        "Revision" if is_knative => Shape::Knative(&[]),
        "Pod" => Shape::Pod(&[]),
        "CronJob" => Shape::Pod(&["spec", "jobTemplate", "spec", "template"]),
        "ScaledJob" => Shape::Pod(&["spec", "jobTargetRef", "template"]),
        "Rollout" if !has_template => match document.find(&["spec", "workloadRef"]) {
            Some(elsewhere) => Shape::Elsewhere(elsewhere.place()),
            None => Shape::Pod(TEMPLATE),
        },
        _ if LIKE_DEPLOYMENT.contains(&kind) => Shape::Pod(TEMPLATE),
        // A schema, which describes containers and runs none.
        "CustomResourceDefinition" => Shape::Nothing,
        _ => match document.get("spec").or(document.get("template")) {
            Some(spec) => match containers(&spec, DEPTH) {
                Some(found) => Shape::Unseen(found.place()),
                None => Shape::Nothing,
            },
            None => Shape::Nothing,
        },
    }
}

/// Returns whether a document is for Cloud Run, which has annotations and labels of its own.
fn is_cloud_run(document: &Node<'_>) -> bool {
    let marks = ["annotations", "labels"].into_iter().flat_map(|key| {
        let own = document.find(&["metadata", key]);
        let of_template = document.find(&["spec", "template", "metadata", key]);
        [own, of_template].into_iter().flatten().flat_map(|map| map.entries())
    });
    let is_marked = marks.into_iter().any(|(key, _)| {
        key.starts_with("run.googleapis.com/") || key.starts_with("cloud.googleapis.com/")
    });
    // Its namespaces are numbers of projects, and its accounts are Google's.
    let namespace = document.find(&["metadata", "namespace"]);
    let namespace = namespace.and_then(|at| at.text()).unwrap_or_default();
    let is_project = !namespace.is_empty() && namespace.chars().all(|c| c.is_ascii_digit());
    let account = document.find(&["spec", "template", "spec", "serviceAccountName"]);
    let account = account.and_then(|at| at.text()).unwrap_or_default();
    is_marked || is_project || account.ends_with(".gserviceaccount.com")
}

fn containers<'a>(at: &Node<'a>, depth: usize) -> Option<Node<'a>> {
    let depth = depth.checked_sub(1)?;
    let found = CONTAINERS.iter().find_map(|key| at.get(key));
    let is_set =
        |found: &Node<'_>| found.is_map() || found.text().is_some() || !found.items().is_empty();
    found.filter(is_set).or_else(|| {
        let entries = at.entries().into_iter().map(|(_, value)| value);
        entries.chain(at.items()).find_map(|value| containers(&value, depth))
    })
}
