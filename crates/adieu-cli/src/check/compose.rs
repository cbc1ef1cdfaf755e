//! Compose files: how each service is stopped.

use super::command;
use super::input::Manifest;
use super::place::{Finding, Level, Place, Wrong};
use super::spans;
use super::workload::{Grace, Supervisor, Told, Workload};
use super::yaml::At;

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
            let why = "neither built here nor with a stop_grace_period";
            into.skip(service.place(), format!("service {name} ({why}; --only {name} judges it)"));
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
            let span = spans::compose(text).map_err(|problem| key.wrong(problem))?;
            Grace::said(Some(span), key.place())
        }
        None => Grace::habit_of(Supervisor::Compose, service.place()),
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
    let (told, told_at) = told(service);
    Ok(Workload {
        kind: "service".into(),
        name: name.into(),
        place: service.place(),
        supervisor: Supervisor::Compose,
        grace,
        told,
        told_at,
        routed: false,
        findings,
        ..Workload::nameless()
    })
}

/// The environment, as a map or as a list of `NAME=value`.
fn told(service: &At<'_>) -> (Told, Option<Place>) {
    let (mut told, mut told_at) = (Told::default(), None);
    let Some(environment) = service.get("environment") else { return (told, told_at) };
    let items = environment.items();
    let listed = items.iter().filter_map(|item| {
        let (name, value) = item.text()?.split_once('=')?;
        Some((name, value, item.place()))
    });
    let entries = environment.entries();
    let mapped = entries.iter().filter_map(|(name, at)| Some((*name, at.text()?, at.place())));
    for (name, value, place) in mapped.chain(listed) {
        if told.hear(name, value) {
            told_at = Some(place);
        }
    }
    (told, told_at)
}
