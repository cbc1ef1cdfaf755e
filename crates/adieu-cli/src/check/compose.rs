//! Compose files: how each service is stopped.

use super::environment::Environment;
use super::input::{Manifest, Source};
use super::place::{Finding, Level, Wrong};
use super::script::{self, Word};
use super::stop_signal::StopSignal;
use super::tree::At;
use super::workload::{Grace, Supervisor, Workload};
use super::{shell, spans};

const RENDER: &str = "judge the whole: docker compose config | adieu check --manifest -";

/// Images that hold no service of ours, by the last part of their names.
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

/// Whether a document is one of these.
pub(crate) fn is_one(document: &At<'_>) -> bool {
    document.get("services").is_some_and(|services| services.is_map())
}

/// Takes all services but those that run somebody else's image, which are named.
pub(crate) fn read(
    document: &At<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), Wrong> {
    let Some(services) = document.get("services") else { return Ok(()) };
    let all = services.entries();
    let is_other = |name: &str, service: &At<'_>| {
        let is_ours = service.get("build").is_some() || service.get("stop_grace_period").is_some();
        !is_ours && source.only != Some(name) && is_somebody_elses(service)
    };
    let only_others = all.iter().all(|(name, service)| is_other(name, service));
    for (name, service) in &all {
        if !only_others && is_other(name, service) {
            let image = service.text_of("image").unwrap_or_default();
            let what = format!("service {name} (image {image}; --only {name} judges it)");
            into.skip(service.place(), what);
            continue;
        }
        into.add(read_service(name, service, &services, source)?)?;
    }
    if let Some(include) = document.get("include") {
        let problem = "the services in these files are not read";
        into.add(Workload::unknown("include", "", include.place(), problem, RENDER))?;
    }
    Ok(())
}

fn is_somebody_elses(service: &At<'_>) -> bool {
    let Some(image) = service.text_of("image") else { return false };
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    OTHERS.contains(&name)
}

fn read_service<'a>(
    name: &str,
    service: &At<'a>,
    services: &At<'a>,
    source: &Source<'_>,
) -> Result<Workload, Wrong> {
    if !service.is_map() {
        return Err(service.wrong("must be a map of keys, such as image and stop_grace_period"));
    }
    let mut workload = Workload::new(Supervisor::Compose, "service", name, service.place());
    // What a service extends in the same file says what it does not say itself.
    let mut layers = vec![service.clone()];
    while let Some(extends) = layers.last().and_then(|layer| layer.get("extends")) {
        let base = extends.text().or_else(|| extends.text_of("service"));
        let base = base.filter(|_| extends.get("file").is_none());
        let base = base.and_then(|base| services.get(base));
        match base.filter(|_| layers.len() < 16) {
            Some(base) => layers.push(base),
            None => {
                let problem = "what it extends is not read";
                let finding = Finding::new(Level::Unknown, extends.place(), problem, RENDER);
                workload.findings.push(finding);
                break;
            }
        }
    }
    let get = |key: &str| layers.iter().find_map(|layer| layer.get(key));
    if let Some(key) = get("stop_grace_period") {
        let text = key.text().ok_or_else(|| key.wrong("must be a duration such as 30s"))?;
        if text.contains('$') {
            let problem = format!("which value {text} has cannot be seen here");
            workload.hide_grace(key.place(), problem, RENDER);
        } else {
            let span = spans::go(text).map_err(|problem| key.wrong(problem))?;
            workload.grace = Grace::said(Some(span), key.place());
        }
    }
    if let Some(signal) = get("stop_signal")
        && let Some(text) = signal.text()
    {
        let (text, fix) = (text.to_owned(), "stop_signal: SIGTERM".into());
        workload.signals.push(StopSignal { text, place: signal.place(), fix });
    }
    let environment = environment(&layers, source);
    look_at_command(get("entrypoint"), get("command"), &environment, &mut workload);
    environment.apply(&mut workload);
    Ok(workload)
}

fn look_at_command(
    entrypoint: Option<At<'_>>,
    command: Option<At<'_>>,
    environment: &Environment,
    workload: &mut Workload,
) {
    let Some(place) = entrypoint.as_ref().or(command.as_ref()).map(At::place) else { return };
    let words = |key: &At<'_>| -> Vec<Word> {
        // A dollar sign is written twice where compose is not to replace anything.
        let literal = |text: &str| Word::known(text.replace("$$", "$"));
        match key.text() {
            Some(text) => script::split(text).iter().map(|word| literal(word)).collect(),
            None => {
                key.texts().into_iter().map(|text| text.map_or(Word::of(None), literal)).collect()
            }
        }
    };
    let words: Vec<_> = entrypoint.iter().chain(command.iter()).flat_map(words).collect();
    let front = shell::front(&words, &environment.values());
    workload.findings.extend(front.finding(place));
}

/// The environment, as a map or as a list of `NAME=value`; before it, that of the files.
fn environment(layers: &[At<'_>], source: &Source<'_>) -> Environment {
    let mut environment = Environment::default();
    for layer in layers.iter().rev() {
        let Some(files) = layer.get("env_file") else { continue };
        let listed = files.items();
        let all = if listed.is_empty() { vec![files.clone()] } else { listed };
        for file in all {
            let name = file.text().or_else(|| file.text_of("path"));
            match name.and_then(|name| source.beside(name)) {
                Some((path, text)) => environment.add_file(&text, &path),
                // One that need not be there sets nothing if it is not.
                None if file.text_of("required") == Some("false") && source.path.is_some() => {}
                None => environment.add_unseen(file.place()),
            }
        }
    }
    for layer in layers.iter().rev() {
        let Some(variables) = layer.get("environment") else { continue };
        for item in variables.items() {
            match item.text().map(|pair| (pair, pair.split_once('='))) {
                Some((_, Some((name, value)))) => {
                    environment.set_marked(name, value, '$', item.place());
                }
                Some((name, None)) => environment.set_unseen(name, item.place()),
                None => {}
            }
        }
        for (name, at) in variables.entries() {
            match at.text().filter(|text| !text.is_empty()) {
                Some(value) => environment.set_marked(name, value, '$', at.place()),
                None => environment.set_unseen(name, at.place()),
            }
        }
    }
    environment
}
