//! Proxies that run beside a process, and carry its connections.

use super::place::{Finding, Level, Place};

/// Parts of the names of containers and images.
const NAMES: [&str; 9] = [
    "istio-proxy",
    "proxyv2",
    "linkerd-proxy",
    "envoy",
    "cloud-sql-proxy",
    "cloudsql-proxy",
    "daprd",
    "consul-dataplane",
    "pgbouncer",
];

/// Helpers that carry no requests: collectors of logs and figures, and the like.
const HELPERS: [&str; 16] = [
    "fluent-bit",
    "fluentbit",
    "fluentd",
    "filebeat",
    "promtail",
    "vector",
    "opentelemetry-collector",
    "otel",
    "datadog",
    "exporter",
    "statsd",
    "vault-agent",
    "nginx",
    "oauth2-proxy",
    "reloader",
    "git-sync",
];

/// Whether a container runs a known helper beside the process.
pub(crate) fn is_helper(name: &str, image: &str) -> bool {
    let is_named = |part: &str| name.contains(part) || image.contains(part);
    is_one(name, image) || HELPERS.iter().any(|part| is_named(part))
}

pub(crate) fn is_one(name: &str, image: &str) -> bool {
    NAMES.iter().any(|part| name.contains(part) || image.contains(part))
}

/// A proxy that is signalled together with the process.
pub(crate) fn ends_first(name: &str, place: Place, advice: &str) -> Finding {
    let problem = format!(
        "{name} is signalled at the same time, and may end first: connections break while requests drain"
    );
    Finding::new(Level::Warning, place, problem, advice)
}
