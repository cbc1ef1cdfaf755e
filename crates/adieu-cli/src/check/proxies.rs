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
