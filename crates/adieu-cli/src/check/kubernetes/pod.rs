//! A pod: the container that is judged, the containers beside it, and the time that all of them take.

use std::time::Duration;

use super::maps::Maps;
use super::shape::Shape;
use super::{Document, alone, container, name_of, nodes, probes};
use crate::check::environment::Environment;
use crate::check::place::{Finding, InputError, Level};
use crate::check::proxies;
use crate::check::supervisor::{Grace, Supervisor};
use crate::check::tree::Node;
use crate::check::workload::Workload;
use crate::check::{effects, images};

/// The annotation of the container that `kubectl` takes by default.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The container that the configuration is for.
struct Choice<'a> {
    container: Node<'a>,
    others: Vec<Node<'a>>,
    /// The names of those among the others that may be meant instead.
    candidates: Vec<String>,
}

/// Settings with which Istio's proxy ends later than after its usual 5 s.
const ISTIO_WAITS: [&str; 2] = ["terminationDrainDuration", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"];

/// How long the proxy of Knative holds SIGTERM back, so that routers can move away.
const KNATIVE_DRAIN: Duration = Duration::from_secs(30);

/// Returns the container that the configuration is for, and all others with variables of this library.
pub(super) fn read(
    document: &Document<'_>,
    shape: &Shape,
    [pod, spec]: [&Node<'_>; 2],
    maps: &Maps<'_>,
    only: Option<&str>,
) -> Result<Vec<Workload>, InputError> {
    let Document { kind, at } = document;
    let Choice { container, others, candidates } = choose(pod, spec, &name_of(at), only)?;
    let supervisor = match shape {
        Shape::Knative(_) => Supervisor::Knative,
        Shape::CloudRun(_) => Supervisor::CloudRun,
        Shape::Pod(_) | Shape::Elsewhere(_) | Shape::Unseen(_) | Shape::Nothing => {
            Supervisor::Kubernetes
        }
    };
    let mut workloads: Vec<Workload> = Vec::new();
    let mut silent = Vec::new();
    for one in [&container].into_iter().chain(&others) {
        let environment = container::environment(one, spec, maps)?;
        let is_chosen = workloads.is_empty();
        let is_judged = is_chosen || environment.is_of_adieu() && only.is_none();
        let is_candidate = candidates.contains(&name(one));
        if !is_judged && !is_candidate {
            silent.push(name(one));
            continue;
        }
        let mut workload = Workload::new(supervisor, kind, &name_of(at), at.place());
        workload.container = one.text_of("name").unwrap_or_default().into();
        workload.grace = grace(supervisor, spec)?;
        workload.alone = alone(kind, at);
        read_container(one, environment, &mut workload)?;
        sidecars(spec, maps, &mut workload)?;
        nodes::read(spec, &mut workload);
        match workloads.first_mut().filter(|_| !is_judged) {
            Some(chosen) => chosen.candidates.push(workload),
            None => workloads.push(workload),
        }
    }
    if let Some(workload) = workloads.first_mut() {
        workload.findings.extend(proxies_beside(pod, &others));
        workload.findings.extend(signals_from_beside(spec, &others));
        if !silent.is_empty() {
            let problem = format!("not judged: {}", silent.join(", "));
            let advice = format!(
                "name the one that this configuration is for with --only, or with the annotation \
                 {DEFAULT_CONTAINER}"
            );
            workload.findings.push(Finding::new(Level::Note, container.place(), problem, advice));
        }
    }
    Ok(workloads)
}

fn read_container(
    container: &Node<'_>,
    mut environment: Environment,
    workload: &mut Workload,
) -> Result<(), InputError> {
    let supervisor = workload.supervisor;
    let is_job = workload.kind.ends_with("Job");
    workload.routed = !is_job
        && (container.get("ports").is_some()
            || container.get("readinessProbe").is_some()
            || supervisor == Supervisor::Knative);
    // A hook has the variables of the container, and not those that its command sets.
    let variables = environment.values();
    container::command(container, &mut environment, workload)?;
    environment.apply(workload);
    if supervisor == Supervisor::Knative {
        workload.pre_stop = KNATIVE_DRAIN;
    } else {
        container::pre_stop(container, &variables, workload)?;
    }
    container::stop_signal(container, workload);
    workload.probe = probes::read(container, workload)?;
    if !workload.routed && !is_job && supervisor == Supervisor::Kubernetes {
        let problem = "neither ports nor a readiness probe: assumed not to be behind a router";
        let advice = "if routers send to it, add a readiness probe, or pass --routing-lag";
        workload.findings.push(Finding::new(Level::Note, container.place(), problem, advice));
    }
    Ok(())
}

fn grace(supervisor: Supervisor, spec: &Node<'_>) -> Result<Grace, InputError> {
    // On Cloud Run, `timeoutSeconds` is how long a request may take, and nothing else.
    let key = spec.get(supervisor.key()).filter(|_| supervisor != Supervisor::CloudRun);
    match key {
        Some(key) => Ok(Grace::said(Some(Duration::from_secs(key.number()?)), key.place())),
        None => Ok(Grace::default_of(supervisor, spec.place())),
    }
}

/// Returns the container that the configuration is for, and the others.
fn choose<'a>(
    pod: &Node<'a>,
    spec: &Node<'a>,
    owner: &str,
    only: Option<&str>,
) -> Result<Choice<'a>, InputError> {
    let Some(containers) = spec.get("containers") else {
        return Err(spec.error("there are no containers: add the one to judge"));
    };
    let mut all = containers.items();
    let annotation = pod.find(&["metadata", "annotations", DEFAULT_CONTAINER]);
    // A container that is called like its owner is the one that is meant.
    let wanted = [only, annotation.as_ref().and_then(Node::text), Some(owner)];
    let named = |wanted: &str| all.iter().position(|container| name(container) == wanted);
    let is_own = |container: &Node<'_>| {
        let image = container.text_of("image").unwrap_or_default();
        !proxies::is_helper(&name(container), image) && !images::is_other(image)
    };
    // If every name is that of a helper, one of them is the service nevertheless.
    let has_own = all.iter().any(is_own);
    let own: Vec<_> = (0..all.len()).filter(|at| !has_own || is_own(&all[*at])).collect();
    let first = own.first().copied().unwrap_or_default();
    let chosen = wanted.into_iter().flatten().find_map(named);
    let at = chosen.unwrap_or(first);
    let candidates = own.iter().filter(|one| chosen.is_none() && **one != at);
    let candidates = candidates.map(|at| name(&all[*at])).collect();
    if all.is_empty() {
        return Err(containers.error("must be a list of one container or more"));
    }
    if let Some(odd) = all.iter().find(|container| !container.is_map()) {
        return Err(odd.error("must be a map of keys, such as name and image"));
    }
    let container = all.remove(at);
    Ok(Choice { container, others: all, candidates })
}

fn name(container: &Node<'_>) -> String {
    container.text_of("name").unwrap_or("without a name").to_owned()
}

fn is_proxy(container: &Node<'_>) -> bool {
    proxies::is_one(&name(container), container.text_of("image").unwrap_or_default())
}

/// Returns findings about proxies that are signalled together with the process, and about proxies that
/// are injected later.
fn proxies_beside(pod: &Node<'_>, others: &[Node<'_>]) -> Vec<Finding> {
    let advice = "make it a native sidecar: an init container with restartPolicy: Always";
    let mut findings = Vec::new();
    for other in others.iter().filter(|other| is_proxy(other)) {
        if other.find(&["lifecycle", "preStop"]).is_none() {
            findings.push(proxies::ends_first(&name(other), other.place(), advice));
        }
    }
    let mark = |map: &str, key: &str| pod.find(&["metadata", map, key]);
    for (maps, key, value, name, wait) in [
        (
            ["annotations", "labels"],
            "sidecar.istio.io/inject",
            "true",
            "istio-proxy",
            "proxy.istio.io/config",
        ),
        (
            ["annotations", "labels"],
            "linkerd.io/inject",
            "enabled",
            "linkerd-proxy",
            "config.alpha.linkerd.io/proxy-wait-before-exit-seconds",
        ),
    ] {
        let found = maps.iter().find_map(|map| mark(map, key));
        // The configuration of Istio's proxy may be about other things.
        let is_long = |at: &Node<'_>| {
            key != "sidecar.istio.io/inject"
                || at
                    .text()
                    .is_some_and(|text| ISTIO_WAITS.iter().any(|setting| text.contains(setting)))
        };
        let waits = mark("annotations", wait).as_ref().is_some_and(is_long)
            || mark("annotations", "config.linkerd.io/proxy-wait-before-exit-seconds").is_some()
            || mark("annotations", "config.beta.linkerd.io/proxy-enable-native-sidecar").is_some();
        if let Some(found) = found.filter(|found| found.text() == Some(value) && !waits) {
            findings.push(proxies::ends_first(name, found.place(), advice));
        }
    }
    findings
}

/// Returns findings about commands of other containers that may signal the process, because the
/// containers of the pod see each other's processes.
fn signals_from_beside(spec: &Node<'_>, others: &[Node<'_>]) -> Vec<Finding> {
    if spec.text_of("shareProcessNamespace") != Some("true") {
        return Vec::new();
    }
    let init = spec.get("initContainers").map(|all| all.items()).unwrap_or_default();
    let hooks = others.iter().chain(&init).filter_map(|one| one.find(&["lifecycle", "preStop"]));
    let signalling = hooks.filter(|hook| {
        let exec = hook.get("exec");
        let effects = exec.map(|exec| effects::of(&container::words(&exec)));
        effects.is_some_and(|effects| effects.is_unseen || !effects.signals.is_empty())
    });
    let findings = signalling.map(|hook| {
        let problem = "may signal the process, because the containers share their processes";
        let advice = "leave it out, or set shareProcessNamespace to false";
        Finding::new(Level::Unknown, hook.place(), problem, advice)
    });
    findings.collect()
}

/// Native sidecars are stopped one after the other when the other containers have ended.
/// One of this library needs the time of a whole shutdown.
fn sidecars(spec: &Node<'_>, maps: &Maps<'_>, workload: &mut Workload) -> Result<(), InputError> {
    let init = spec.get("initContainers").map(|all| all.items()).unwrap_or_default();
    let is_sidecar = |container: &&Node<'_>| container.text_of("restartPolicy") == Some("Always");
    for sidecar in init.iter().filter(is_sidecar) {
        let environment = container::environment(sidecar, spec, maps)?;
        if environment.is_of_adieu() {
            let (supervisor, kind) = (workload.supervisor, workload.kind.clone());
            let mut late = Workload::new(supervisor, &kind, &workload.name, sidecar.place());
            late.container = name(sidecar);
            late.grace = workload.grace.clone();
            read_container(sidecar, environment, &mut late)?;
            workload.late.push(late);
            continue;
        }
        workload.sidecars = workload.sidecars.saturating_add(1);
        let Some(hook) = sidecar.find(&["lifecycle", "preStop"]) else { continue };
        match container::hook_takes(&hook, &Default::default()) {
            Some(takes) => workload.sidecar_hooks = workload.sidecar_hooks.saturating_add(takes),
            None => {
                let problem = "how long this sidecar takes to stop cannot be seen here";
                let advice = "use sleep: {seconds: …}, or leave it out";
                workload.findings.push(Finding::new(Level::Warning, hook.place(), problem, advice));
            }
        }
    }
    Ok(())
}
