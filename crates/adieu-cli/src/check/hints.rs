//! Advice for files that must be rendered to manifests first: charts, values, templates,
//! kustomizations.

use std::path::Path;

use super::input::Source;
use super::place::InputError;
use super::tree::Node;

/// The kinds of manifests that can be judged.
pub(crate) const KNOWN: &str = "must be a manifest of Kubernetes (kind), a compose file (services), \
                                a systemd unit, a quadlet, a task definition of ECS, a job of Nomad, \
                                a fly.toml, a configuration of supervisord, or a docker run line";

const RENDER_HELM: &str = "render the chart first: helm template CHART | adieu check --manifest -";

/// Keys with which charts are filled in.
const VALUES: [&str; 6] = [
    "replicaCount",
    "fullnameOverride",
    "nameOverride",
    "imagePullSecrets",
    "podAnnotations",
    "autoscaling",
];

/// Advice for a folder.
pub(crate) fn of_folder(folder: &Path) -> String {
    let shown = folder.display();
    let has = |name: &str| folder.join(name).is_file();
    if has("Chart.yaml") {
        return format!("a chart of Helm: helm template {shown} | adieu check --manifest -");
    }
    if has("kustomization.yaml") || has("kustomization.yml") || has("Kustomization") {
        return format!("a Kustomization: kubectl kustomize {shown} | adieu check --manifest -");
    }
    "a folder: give its files one by one, each with --manifest".into()
}

/// Advice for a document that must be rendered first.
pub(crate) fn of_document(document: &Node<'_>, source: &Source<'_>) -> Option<String> {
    let has = |key: &str| document.get(key).is_some();
    let folder = source.path.and_then(Path::parent).map(|folder| folder.display().to_string());
    let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or_else(|| ".".into());
    let file_name = source.path.and_then(Path::file_name).and_then(|name| name.to_str());
    let api = document.text_of("apiVersion").unwrap_or_default();
    let kind = document.text_of("kind");
    let is_kustomization = api.starts_with("kustomize.config.k8s.io")
        || kind.is_none()
            && file_name.is_some_and(|name| name.to_lowercase().starts_with("kustomization"));
    if is_kustomization {
        return Some(format!(
            "a Kustomization runs nothing itself; render it first: kubectl kustomize {folder} | adieu \
             check --manifest -"
        ));
    }
    if matches!(kind, Some("HelmRelease" | "HelmChart")) {
        return Some(format!("its pods are in a chart; {RENDER_HELM}"));
    }
    if kind.is_some() || has("services") || has("include") {
        return None;
    }
    if has("apiVersion") && has("name") && has("version") {
        return Some(format!(
            "a chart of Helm runs nothing itself; render it first: helm template {folder} | adieu check \
             --manifest -"
        ));
    }
    let is_values = VALUES.iter().any(|key| has(key))
        || document.find(&["image", "repository"]).is_some()
        || file_name.is_some_and(|name| name.starts_with("values"));
    is_values.then(|| format!("these are values of a chart of Helm; {RENDER_HELM}"))
}

/// Templates are the usual reason why a manifest cannot be read.
pub(crate) fn explain(mut wrong: InputError, source: &Source<'_>) -> InputError {
    if source.text.contains("{{") {
        wrong.problem = format!("{}; this is a template: {RENDER_HELM}", wrong.problem);
    }
    wrong
}
