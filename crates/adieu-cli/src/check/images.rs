//! Images that hold no service of ours.

/// By the last part of their names.
const OTHERS: [&str; 50] = [
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
    "watchtower",
    "autoheal",
    "portainer",
    "portainer-ce",
    "pgadmin4",
    "phpmyadmin",
    "cadvisor",
    "node-exporter",
    "alertmanager",
    "mailpit",
];

/// Returns whether an image is one of them.
pub(crate) fn is_other(image: &str) -> bool {
    OTHERS.contains(&short_name(image))
}

/// Returns the last part of the name of an image, without its tag and digest.
pub(crate) fn short_name(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split([':', '@']).next().unwrap_or(last)
}
