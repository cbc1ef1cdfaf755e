//! Proxies that run beside a process, and carry its connections.

use super::images::short_name;
use super::place::{Finding, Level, Place};

/// Names of proxies, as containers and images have them.
const PROXIES: [&str; 11] = [
    "istio-proxy",
    "proxyv2",
    "linkerd-proxy",
    "envoy",
    "aws-appmesh-envoy",
    "cloud-sql-proxy",
    "cloudsql-proxy",
    "gce-proxy",
    "daprd",
    "consul-dataplane",
    "pgbouncer",
];

/// Names of helpers that carry no requests: collectors of logs and figures, and the like.
const HELPERS: [&str; 25] = [
    "fluent-bit",
    "fluentbit",
    "aws-for-fluent-bit",
    "log_router",
    "log-router",
    "fluentd",
    "filebeat",
    "promtail",
    "vector",
    "opentelemetry-collector",
    "opentelemetry-collector-contrib",
    "otel",
    "otel-agent",
    "otel-collector",
    "aws-otel-collector",
    "datadog",
    "datadog-agent",
    "statsd",
    "vault-agent",
    "nginx",
    "nginx-unprivileged",
    "oauth2-proxy",
    "reloader",
    "git-sync",
    "cloudwatch-agent",
];

/// Images of helpers that the last part of their name does not identify.
const VENDORS: [&str; 3] = ["datadog/agent", "amazon/cloudwatch-agent", "grafana/agent"];

/// Returns whether a container runs a known helper beside the process.
///
/// Only whole names count: `acme/nginx-gateway` may be a service.
pub(crate) fn is_helper(name: &str, image: &str) -> bool {
    let is_exporter = |name: &str| name.ends_with("-exporter") || name.ends_with("_exporter");
    let untagged = untagged(image);
    has(&PROXIES, name, image)
        || has(&HELPERS, name, image)
        || is_exporter(short_name(image))
        || VENDORS.iter().any(|vendor| {
            untagged.strip_suffix(vendor).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
}

/// Returns whether a container is called like a proxy. Parts of names count, because this only
/// leads to warnings.
pub(crate) fn is_one(name: &str, image: &str) -> bool {
    PROXIES.iter().any(|part| name.contains(part) || image.contains(part))
}

fn has(list: &[&str], name: &str, image: &str) -> bool {
    list.contains(&name) || list.contains(&short_name(image))
}

/// Returns the whole name of an image, without its tag and digest.
fn untagged(image: &str) -> &str {
    let last = image.rfind('/').map_or(0, |at| at + 1);
    let end = image[last..].find([':', '@']).map_or(image.len(), |at| last + at);
    &image[..end]
}

/// A proxy that is signalled together with the process.
pub(crate) fn ends_first(name: &str, place: Place, advice: &str) -> Finding {
    let problem = format!(
        "{name} is signalled at the same time, and may end first: connections break while requests drain"
    );
    Finding::new(Level::Warning, place, problem, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1350_only_whole_names_are_those_of_helpers() {
        for (name, image) in [
            ("log", "fluent/fluent-bit:3"),
            ("envoy", "registry.example/any"),
            ("sidecar", "envoyproxy/envoy:v1.30"),
            ("db", "gcr.io/cloud-sql-connectors/cloud-sql-proxy:2.8.0"),
            ("metrics", "prom/statsd-exporter"),
            ("agent", "public.ecr.aws/datadog/agent:latest"),
        ] {
            assert!(is_helper(name, image), "{name} {image}");
        }
        for (name, image) in [
            ("search", "acme/vector-search:1"),
            ("gateway", "acme/nginx-gateway"),
            ("control", "acme/envoy-control:2"),
            ("agent", "acme/agent:1"),
            ("exporter", "acme/invoices:1"),
            ("app", "mydatadog/agent"),
        ] {
            assert!(!is_helper(name, image), "{name} {image}");
        }
    }
}
