//! Compose files: how each service is stopped.

use super::command;
use super::input::Manifest;
use super::place::{Finding, Level, Wrong};
use super::spans;
use super::workload::{Grace, Supervisor, Told, Workload};
use super::yaml::At;
use std::time::Duration;

/// Whether a document is one of these.
pub(crate) fn is_one(document: &At<'_>) -> bool {
    document.get("services").is_some_and(|services| services.is_map())
}

/// Takes the services that are ours: those that are built here or say how long stopping takes; or
/// all, if none does. The others are databases and the like.
pub(crate) fn read(
    document: &At<'_>,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), Wrong> {
    let services = document.get("services").map(|services| services.entries()).unwrap_or_default();
    let is_asked = |name: &str| only == Some(name);
    let is_ours = |service: &At<'_>| {
        service.get("build").is_some() || service.get("stop_grace_period").is_some()
    };
    let some_are = services.iter().any(|(_, service)| is_ours(service));
    for (name, service) in &services {
        if is_asked(name) || is_ours(service) || !some_are {
            into.add(read_service(name, service)?)?;
        } else {
            into.skip(service.place(), format!("service {name}"));
        }
    }
    Ok(())
}

fn read_service(name: &str, service: &At<'_>) -> Result<Workload, Wrong> {
    if !service.is_map() {
        return Err(service.wrong("must be a map of keys, such as image and stop_grace_period"));
    }
    let mut findings = Vec::new();
    let grace = match service.get("stop_grace_period") {
        Some(key) => {
            let text = key.text().ok_or_else(|| key.wrong("must be a duration such as 30s"))?;
            Grace::said(Some(spans::compose(text).map_err(|problem| key.wrong(problem))?))
        }
        None => Grace::habit_of(Supervisor::Compose),
    };
    if let Some(signal) = service.get("stop_signal")
        && let Some(text) = signal.text()
        && !["SIGTERM", "TERM", "15"].contains(&text)
    {
        let problem = format!("{text} is sent, not SIGTERM");
        let advice = "leave it out, unless the process listens to that signal";
        findings.push(Finding::new(Level::Warning, signal.place(), &problem, advice));
    }
    if let Some(extends) = service.get("extends") {
        let problem = "what it extends is not looked at";
        let advice = "judge the whole: docker compose config | adieu check --manifest -";
        findings.push(Finding::new(Level::Note, extends.place(), problem, advice));
    }
    for key in ["entrypoint", "command"] {
        let Some(line) = service.get(key) else { continue };
        let words: Vec<At<'_>> = line.items();
        let words: Vec<&str> = match line.text() {
            Some(text) => text.splitn(3, char::is_whitespace).collect(),
            None => words.iter().filter_map(At::text).collect(),
        };
        let unquoted: Vec<_> = words.iter().map(|word| word.trim_matches(['"', '\''])).collect();
        findings.extend(command::shell_in_front(&unquoted, line.place()));
    }
    Ok(Workload {
        kind: "service".into(),
        name: name.into(),
        container: String::new(),
        place: service.place(),
        supervisor: Supervisor::Compose,
        grace,
        pre_stop: Duration::ZERO,
        pre_stop_fails: false,
        sidecars: 0,
        told: told(service),
        routed: false,
        findings,
    })
}

/// The environment, as a map or as a list of `NAME=value`.
fn told(service: &At<'_>) -> Told {
    let mut told = Told::default();
    let Some(environment) = service.get("environment") else { return told };
    for (name, value) in environment.entries() {
        told.hear(name, value.text().unwrap_or_default());
    }
    for item in environment.items() {
        if let Some((name, value)) = item.text().and_then(|item| item.split_once('=')) {
            told.hear(name, value);
        }
    }
    told
}
