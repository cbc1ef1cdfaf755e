//! Where each kind of document has its pod, and who decides how that is stopped.

use crate::check::place::Place;
use crate::check::tree::At;

/// What a document is, as far as stopping is concerned.
pub(super) enum Shape {
    /// A pod, or something that makes pods of a template at this path.
    Pod(&'static [&'static str]),
    /// A revision of Knative: its grace period is its request timeout.
    Knative(&'static [&'static str]),
    /// The same on Cloud Run, which waits ten seconds whatever it says.
    CloudRun(&'static [&'static str]),
    /// It runs containers in a way that is not known here.
    Unseen(Place),
    /// It runs nothing.
    Nothing,
}

/// Keys under which kinds that are not known here may keep what they run.
const CONTAINERS: [&str; 5] = ["containers", "container", "podTemplate", "podSpec", "jobTemplate"];

/// How deep they are searched for.
const DEPTH: usize = 6;

const TEMPLATE: &[&str] = &["spec", "template"];

pub(super) fn of(kind: &str, document: &At<'_>) -> Shape {
    let api = document.text_of("apiVersion").unwrap_or_default();
    let is_knative = api.starts_with("serving.knative.dev/");
    match kind {
        "Pod" => Shape::Pod(&[]),
        "CronJob" => Shape::Pod(&["spec", "jobTemplate", "spec", "template"]),
        "Job" if api.starts_with("run.googleapis.com/") => {
            Shape::CloudRun(&["spec", "template", "spec", "template"])
        }
        "Service" | "Configuration" if is_knative && is_cloud_run(document) => {
            Shape::CloudRun(TEMPLATE)
        }
        "Revision" if is_knative && is_cloud_run(document) => Shape::CloudRun(&[]),
        "Service" | "Configuration" if is_knative => Shape::Knative(TEMPLATE),
        "Revision" if is_knative => Shape::Knative(&[]),
        "ScaledJob" => Shape::Pod(&["spec", "jobTargetRef", "template"]),
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job" => Shape::Pod(TEMPLATE),
        // A schema, which describes containers and runs none.
        "CustomResourceDefinition" => Shape::Nothing,
        // Whatever else has a template of pods: Rollout, for example.
        _ if document.find(&["spec", "template", "spec", "containers"]).is_some() => {
            Shape::Pod(TEMPLATE)
        }
        _ => match document.get("spec").and_then(|spec| containers(&spec, DEPTH)) {
            Some(found) => Shape::Unseen(found.place()),
            None => Shape::Nothing,
        },
    }
}

/// Cloud Run marks what it runs with annotations and labels of its own.
fn is_cloud_run(document: &At<'_>) -> bool {
    let marks = ["annotations", "labels"].into_iter().flat_map(|key| {
        let own = document.find(&["metadata", key]);
        let of_template = document.find(&["spec", "template", "metadata", key]);
        [own, of_template].into_iter().flatten().flat_map(|map| map.entries())
    });
    marks.into_iter().any(|(key, _)| {
        key.starts_with("run.googleapis.com/") || key.starts_with("cloud.googleapis.com/")
    })
}

fn containers<'a>(at: &At<'a>, depth: usize) -> Option<At<'a>> {
    let depth = depth.checked_sub(1)?;
    let found = CONTAINERS.iter().find_map(|key| at.get(key));
    found.filter(|found| found.is_map() || !found.items().is_empty()).or_else(|| {
        let entries = at.entries().into_iter().map(|(_, value)| value);
        entries.chain(at.items()).find_map(|value| containers(&value, depth))
    })
}
