//! Kubernetes manifests: the documents of a file, and the pods that they describe.

mod container;
mod probes;

use std::time::Duration;

use super::input::Manifest;
use super::place::{Finding, Level, Place, Wrong};
use super::workload::{GRACE_VAR, Grace, Supervisor, Told, Workload};
use super::yaml::At;

/// No release has more.
const MOST_DOCUMENTS: usize = 10_000;

/// Lists in lists: no tool writes them, but they can be written.
const LISTS: usize = 4;

/// The one that `kubectl` takes if nobody says which.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What runs when a release is made, and is not part of it.
const HELM_HOOK: &str = "helm.sh/hook";

/// Whether a document is one of these, and not of compose.
pub(crate) fn is_one(document: &At<'_>) -> bool {
    document.get("kind").is_some() || document.get("apiVersion").is_some()
}

/// Takes what a document describes; names it if that runs nothing.
pub(crate) fn read(
    document: &At<'_>,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), Wrong> {
    read_nested(document, only, into, LISTS)
}

fn read_nested(
    document: &At<'_>,
    only: Option<&str>,
    into: &mut Manifest,
    lists: usize,
) -> Result<(), Wrong> {
    // An alias in a list stands for as much as it likes.
    into.documents += 1;
    if into.documents > MOST_DOCUMENTS {
        let problem = format!("more than {MOST_DOCUMENTS} documents: give them file by file");
        return Err(document.wrong(problem));
    }
    let Some(kind) = document.get("kind").and_then(|kind| kind.text()) else {
        return Err(document.wrong("there is no kind: write one, such as Deployment"));
    };
    if kind == "List" {
        let Some(lists) = lists.checked_sub(1) else {
            return Err(document.wrong("lists in lists in lists: write them out"));
        };
        for item in document.get("items").map(|items| items.items()).unwrap_or_default() {
            read_nested(&item, only, into, lists)?;
        }
        return Ok(());
    }
    let to_pod: &[&str] = match kind {
        "Pod" => &[],
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job" => &["spec", "template"],
        // Whatever else has a template of pods: Rollout, for example.
        _ if document.find(&["spec", "template", "spec", "containers"]).is_some() => {
            &["spec", "template"]
        }
        _ => {
            into.skip(document.place(), format!("{kind} {}", name_of(document)));
            return Ok(());
        }
    };
    if document.find(&["metadata", "annotations", HELM_HOOK]).is_some() && only.is_none() {
        let what = format!("{kind} {} (a hook of Helm, which runs to its end)", name_of(document));
        into.skip(document.place(), what);
        return Ok(());
    }
    let pod = document.find(to_pod).and_then(|pod| Some((pod.get("spec")?, pod)));
    let Some((spec, pod)) = pod else {
        let key = [to_pod, &["spec"]].concat().join(".");
        return Err(document.wrong(format!("this {kind} has no {key}: there is no pod to judge")));
    };
    let mut workload = read_pod(kind, document, &pod, &spec, only)?;
    workload.findings.extend(about_strategy(kind, document));
    into.add(workload)
}

fn name_of(document: &At<'_>) -> String {
    let name = ["name", "generateName"].into_iter().find_map(|key| {
        document.find(&["metadata", key]).and_then(|name| name.text().map(str::to_owned))
    });
    name.unwrap_or_else(|| "without a name".into())
}

fn read_pod(
    kind: &str,
    document: &At<'_>,
    pod: &At<'_>,
    spec: &At<'_>,
    only: Option<&str>,
) -> Result<Workload, Wrong> {
    let (container, others) = choose(pod, spec, only)?;
    let grace_key = spec.get("terminationGracePeriodSeconds");
    let grace = match &grace_key {
        Some(key) => Grace::said(Some(Duration::from_secs(key.number()?)), key.place()),
        None => Grace::habit_of(Supervisor::Kubernetes, spec.place()),
    };
    let mut findings = Vec::new();
    if let Some(key) = grace_key.filter(|_| grace.span == Some(Duration::ZERO)) {
        let problem = "kills at once: neither preStop nor SIGTERM is of any use";
        findings.push(Finding::new(Level::Error, key.place(), problem, "give it time"));
    }
    let mut told = Told::default();
    let told_at = container::hear(&container, &mut told, &mut findings);
    let pre_stop = container::pre_stop(&container, &grace, told, &mut findings)?;
    if let Some(from) = container.get("envFrom").filter(|_| told.grace.is_none()) {
        let problem = "what this sets cannot be seen here: the process is taken to know its time";
        let advice = format!("see to it that it sets {GRACE_VAR}");
        findings.push(Finding::new(Level::Note, from.place(), problem, &advice));
        told = Told {
            grace: grace.span.map(|span| span.as_secs()),
            pre_stop: Some(pre_stop.waits.as_secs()),
        };
    }
    container::look_at_command(&container, &mut findings);
    let is_routed = !kind.ends_with("Job")
        && (container.get("ports").is_some() || container.get("readinessProbe").is_some());
    let probe = probes::look_at(&container, is_routed, &mut findings)?;
    if !is_routed && !kind.ends_with("Job") {
        let problem = "neither ports nor a readiness probe: taken for one that no router knows";
        let advice = "if routers send to it, add a readiness probe, or say --routing-lag";
        findings.push(Finding::new(Level::Note, container.place(), problem, advice));
    }
    if !others.is_empty() {
        let problem = format!("not judged: {}", others.join(", "));
        let advice = "name the one that this configuration is for with --only";
        findings.push(Finding::new(Level::Note, container.place(), &problem, advice));
    }
    let init = spec.get("initContainers").map(|all| all.items()).unwrap_or_default();
    let is_sidecar = |container: &&At<'_>| {
        container.get("restartPolicy").and_then(|policy| policy.text()) == Some("Always")
    };
    Ok(Workload {
        kind: kind.into(),
        name: name_of(document),
        container: container.get("name").and_then(|name| name.text()).unwrap_or_default().into(),
        place: document.place(),
        supervisor: Supervisor::Kubernetes,
        grace,
        pre_stop: pre_stop.waits,
        pre_stop_fails: pre_stop.fails,
        sidecars: u32::try_from(init.iter().filter(is_sidecar).count()).unwrap_or(u32::MAX),
        told,
        told_at,
        probe,
        alone: alone(kind, document),
        routed: is_routed,
        findings,
    })
}

/// The container that the configuration is for, and the names of the others.
fn choose<'a>(
    pod: &At<'a>,
    spec: &At<'a>,
    only: Option<&str>,
) -> Result<(At<'a>, Vec<String>), Wrong> {
    let Some(containers) = spec.get("containers") else {
        return Err(spec.wrong("there are no containers: add the one to judge"));
    };
    let all = containers.items();
    let name = |container: &At<'_>| {
        container.get("name").and_then(|name| name.text()).unwrap_or("without a name").to_owned()
    };
    let annotation = pod.find(&["metadata", "annotations", DEFAULT_CONTAINER]);
    let wanted = [only, annotation.as_ref().and_then(At::text)];
    let named = |wanted: &str| all.iter().position(|container| name(container) == wanted);
    let at = wanted.into_iter().flatten().find_map(named).unwrap_or(0);
    let Some(chosen) = all.get(at) else {
        return Err(containers.wrong("must be a list of one container or more"));
    };
    let others = all.iter().enumerate().filter(|(other, _)| *other != at);
    Ok((chosen.clone(), others.map(|(_, container)| name(container)).collect()))
}

/// Where it is said that there is a single replica.
fn alone(kind: &str, document: &At<'_>) -> Option<Place> {
    let replicas = document.find(&["spec", "replicas"]).filter(|_| kind != "Job")?;
    (replicas.text() == Some("1")).then(|| replicas.place())
}

/// What is said about how old ones are replaced.
fn about_strategy(kind: &str, document: &At<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = |keys: &[&str]| document.find(keys).and_then(|at| Some((at.text()?, at.place())));
    if kind != "Deployment" {
        return findings;
    }
    if let Some(("Recreate", place)) = text(&["spec", "strategy", "type"]) {
        let problem = "all replicas stop before the first new one starts: nobody serves meanwhile";
        let advice = "use RollingUpdate with maxUnavailable 0";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    if let Some((most, place)) = text(&["spec", "strategy", "rollingUpdate", "maxUnavailable"])
        && !["0", "0%"].contains(&most)
    {
        let problem = "old replicas stop before new ones are ready: fewer serve meanwhile";
        let advice = "set maxUnavailable to 0 and maxSurge to 1";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    findings
}
