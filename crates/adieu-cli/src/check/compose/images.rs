//! Images that hold no service of ours.

use crate::check::tree::At;

/// By the last part of their names.
const OTHERS: [&str; 40] = [
    "postgres",
    "postgresql",
    "postgis",
    "timescaledb",
    "mysql",
    "mariadb",
    "mongo",
    "mongodb",
    "redis",
    "valkey",
    "memcached",
    "rabbitmq",
    "nats",
    "kafka",
    "zookeeper",
    "redpanda",
    "elasticsearch",
    "opensearch",
    "kibana",
    "clickhouse",
    "cassandra",
    "etcd",
    "consul",
    "vault",
    "nginx",
    "httpd",
    "haproxy",
    "traefik",
    "caddy",
    "envoy",
    "prometheus",
    "grafana",
    "loki",
    "jaeger",
    "all-in-one",
    "opentelemetry-collector",
    "minio",
    "localstack",
    "mailhog",
    "adminer",
];

/// Whether a service runs one of them.
pub(super) fn is_other(service: &At<'_>) -> bool {
    let Some(image) = service.text_of("image") else { return false };
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    OTHERS.contains(&name)
}
