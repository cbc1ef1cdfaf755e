//! Documents of a file that run nothing themselves, but may change the pods of the others.

use std::collections::HashSet;

use super::Document;
use super::shape::{self, Shape};
use crate::check::place::{Finding, Level, Place};
use crate::check::tree::Node;

/// Groups of Kubernetes itself. None of their kinds fills a Secret or a ConfigMap.
const BUILT_IN: &str = "\
    v1 apps batch autoscaling policy extensions networking.k8s.io rbac.authorization.k8s.io \
    storage.k8s.io scheduling.k8s.io coordination.k8s.io discovery.k8s.io certificates.k8s.io \
    node.k8s.io apiextensions.k8s.io apiregistration.k8s.io admissionregistration.k8s.io \
    flowcontrol.apiserver.k8s.io events.k8s.io authentication.k8s.io authorization.k8s.io \
    resource.k8s.io gateway.networking.k8s.io snapshot.storage.k8s.io";

/// Groups of operators whose kinds change no pod of another document.
const HARMLESS: &str = "\
    monitoring.coreos.com monitoring.googleapis.com cert-manager.io acme.cert-manager.io \
    networking.istio.io security.istio.io telemetry.istio.io traefik.io traefik.containo.us \
    keda.sh eventing.keda.sh external-secrets.io generators.external-secrets.io \
    kubernetes-client.io bitnami.com secrets.hashicorp.com secrets-store.csi.x-k8s.io \
    secrets.infisical.com secrets.doppler.com onepassword.com isindir.github.com \
    cilium.io crd.projectcalico.org projectcalico.org cloud.google.com networking.gke.io \
    elbv2.k8s.aws vpcresources.k8s.aws getambassador.io projectcontour.io configuration.konghq.com \
    linkerd.io policy.linkerd.io split.smi-spec.io kafka.strimzi.io postgresql.cnpg.io acid.zalan.do \
    autoscaling.k8s.io route.openshift.io image.openshift.io build.openshift.io \
    security.openshift.io project.openshift.io template.openshift.io apps.openshift.io \
    velero.io grafana.integreatly.org integreatly.org operator.victoriametrics.com \
    opentelemetry.io dapr.io gateway.envoyproxy.io serving.knative.dev eventing.knative.dev \
    messaging.knative.dev run.googleapis.com argoproj.io source.toolkit.fluxcd.io \
    notification.toolkit.fluxcd.io flagger.app apps.kruise.io ray.io kubeflow.org";

/// The endings of groups of which the same holds.
const HARMLESS_ENDINGS: [&str; 5] =
    [".services.k8s.aws", ".cnrm.cloud.google.com", ".crossplane.io", ".upbound.io", ".strimzi.io"];

/// Kinds of these groups that change pods, or make them of other files.
const CHANGING: [&str; 5] = [
    "MutatingWebhookConfiguration",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "Application",
    "ApplicationSet",
];

/// Annotations, by the part in front of the slash, with which nothing fills a map. Annotations without
/// a slash are remarks.
const REMARKS: &str = "\
    helm.sh meta.helm.sh kubectl.kubernetes.io argocd.argoproj.io app.kubernetes.io \
    config.kubernetes.io internal.config.kubernetes.io kustomize.toolkit.fluxcd.io \
    reloader.stakater.com checksum kubernetes.io strategy.spinnaker.io moniker.spinnaker.io \
    artifact.spinnaker.io field.cattle.io";

/// More values than these documents have in one file. An alias may stand for any number of them.
const MOST_VALUES: usize = 100_000;

/// The changes that the documents of a file may make to others.
pub(super) struct Others {
    /// The texts in documents that may fill maps; `None` if there are too many.
    named: Option<HashSet<String>>,
    /// The first document that may change pods.
    changing: Option<(String, Place)>,
}

impl Others {
    pub(super) fn of(all: &[Document<'_>]) -> Self {
        let (mut named, mut left) = (HashSet::new(), MOST_VALUES);
        let mut is_whole = true;
        for document in all.iter().filter(|document| !is_listed(BUILT_IN, group(&document.at))) {
            // A Deployment of any group runs pods, and fills nothing.
            if matches!(shape::of(&document.kind, &document.at), Shape::Nothing) {
                is_whole &= add_texts(&document.at, &mut named, &mut left);
            }
        }
        let changing = all.iter().find(|document| changes_pods(document));
        let changing = changing.map(|document| (document.kind.clone(), document.at.place()));
        Self { named: is_whole.then_some(named), changing }
    }

    /// Returns whether another component may fill a Secret or a ConfigMap of this name.
    pub(super) fn may_fill(&self, map: &Node<'_>, name: &str) -> bool {
        let annotations = map.find(&["metadata", "annotations"]).map(|all| all.entries());
        let is_remark = |(key, _): &(&str, Node<'_>)| {
            key.split_once('/').is_none_or(|(prefix, _)| is_listed(REMARKS, prefix))
        };
        let is_named = self.named.as_ref().is_none_or(|named| named.contains(name));
        is_named || !annotations.unwrap_or_default().iter().all(is_remark)
    }

    /// Returns the finding about a document that may change the pods of the others.
    pub(super) fn finding(&self) -> Option<Finding> {
        let (kind, place) = self.changing.as_ref()?;
        let problem = format!("this {kind} may change the pods of this file when they are made");
        let advice =
            "check the pods that run: kubectl get pod NAME -o yaml | adieu check --manifest -";
        Some(Finding::new(Level::Unknown, place.clone(), problem, advice))
    }
}

fn group<'a>(document: &Node<'a>) -> &'a str {
    let api = document.text_of("apiVersion").unwrap_or("v1");
    api.split_once('/').map_or(api, |(group, _)| group)
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|one| one == name)
}

fn changes_pods(document: &Document<'_>) -> bool {
    let group = group(&document.at);
    let is_harmless = is_listed(BUILT_IN, group)
        || is_listed(HARMLESS, group)
        || HARMLESS_ENDINGS.iter().any(|ending| group.ends_with(ending));
    let is_known = is_harmless && !CHANGING.contains(&document.kind.as_str());
    !is_known && matches!(shape::of(&document.kind, &document.at), Shape::Nothing)
}

/// Adds the texts of a document. Returns `false` if there are too many.
fn add_texts(at: &Node<'_>, texts: &mut HashSet<String>, left: &mut usize) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    if let Some(text) = at.text() {
        texts.insert(text.to_owned());
    }
    let values = at.entries().into_iter().map(|(_, value)| value).chain(at.items());
    values.into_iter().all(|value| add_texts(&value, texts, left))
}
