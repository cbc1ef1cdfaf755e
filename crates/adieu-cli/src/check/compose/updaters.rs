//! Services that stop the containers beside them, with time limits of their own.

use std::time::Duration;

use super::{merging, words};
use crate::check::images::short_name;
use crate::check::place::{Finding, Level};
use crate::check::tree::Node;
use crate::check::workload::OtherStop;
use crate::check::{container_stop, spans};

/// By the last part of their images: the variable that sets the limit, and how bad a short limit is.
/// Watchtower stops a container to update it; autoheal only if it is not healthy.
const UPDATERS: [(&str, &str, Level); 2] = [
    ("watchtower", "WATCHTOWER_TIMEOUT", Level::Error),
    ("autoheal", "AUTOHEAL_DEFAULT_STOP_TIMEOUT", Level::Warning),
];

/// The limit of both if none is set.
const DEFAULT: Duration = Duration::from_secs(10);

/// The label with which a container opts out of watchtower.
const OPT_OUT: &str = "com.centurylinklabs.watchtower.enable";

/// Returns the services that may stop the one with these layers.
pub(super) fn of(services: &[(&str, Vec<Node<'_>>)], layers: &[Node<'_>]) -> Vec<OtherStop> {
    let mut stops = Vec::new();
    for (name, other) in services {
        let image = merging::values(other, "image").into_iter().next();
        let known = image.as_ref().and_then(Node::text).map(short_name);
        let known = UPDATERS.iter().find(|(image, ..)| known == Some(*image));
        let Some((image, variable, level)) = known else { continue };
        if *image == "watchtower" && opts_out(layers) {
            continue;
        }
        let (limit, key, place) = limit(other, variable);
        stops.push(OtherStop {
            who: (*name).to_owned(),
            limit: limit.unwrap_or(DEFAULT),
            key: Some(key),
            level: *level,
            place,
        });
    }
    stops
}

/// Images that update the containers beside them, with a time limit that cannot be seen.
const OTHER_UPDATERS: [&str; 3] = ["ouroboros", "wud", "whats-up-docker"];

/// Returns the findings about other services that stop the service of this name with a command, or in
/// a way that cannot be seen.
pub(super) fn commands(
    services: &[(&str, Vec<Node<'_>>)],
    service: &str,
    layers: &[Node<'_>],
) -> Vec<Finding> {
    let own_name = first(layers, "container_name").and_then(|name| name.text().map(str::to_owned));
    let is_meant = |name: &str| name.contains(service) || own_name.as_deref() == Some(name);
    let mut findings = Vec::new();
    for (name, other) in services.iter().filter(|(name, _)| *name != service) {
        let image = first(other, "image");
        let is_updater = image
            .as_ref()
            .and_then(Node::text)
            .is_some_and(|image| OTHER_UPDATERS.contains(&short_name(image)));
        if let Some(image) = image.filter(|_| is_updater) {
            let problem =
                format!("{name} stops containers to update them, with its own time limit");
            let advice = "leave it out, or update with docker compose up";
            findings.push(Finding::new(Level::Unknown, image.place(), problem, advice));
        }
        let keys = ["entrypoint", "command"].iter().filter_map(|key| first(other, key));
        let keys: Vec<_> = keys.collect();
        let Some(place) = keys.first().map(Node::place) else { continue };
        let command: Vec<_> = keys.iter().flat_map(words).collect();
        if container_stop::may_stop(&command, &is_meant) {
            let problem = format!("{name} runs a command that may stop this container undrained");
            let advice = format!("leave it out, or stop it with docker stop --time in {name}");
            findings.push(Finding::new(Level::Unknown, place, problem, advice));
        }
    }
    findings
}

fn first<'a>(layers: &[Node<'a>], key: &str) -> Option<Node<'a>> {
    merging::values(layers, key).into_iter().next()
}

/// Returns the limit that a service sets, with the option or variable that sets it, and where. A limit
/// that cannot be seen counts as unset.
fn limit(
    service: &[Node<'_>],
    variable: &'static str,
) -> (Option<Duration>, &'static str, crate::check::place::Place) {
    let parsed = |text: &str| {
        let seconds = text.parse().map(Duration::from_secs);
        seconds.ok().or_else(|| spans::go(text).ok())
    };
    for command in merging::values(service, "command") {
        let words = words(&command);
        for (at, word) in words.iter().enumerate() {
            let value = match word.text.strip_prefix("--stop-timeout") {
                Some("") => words.get(at + 1).map(|word| word.text.as_str()),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            };
            if let Some(value) = value {
                return (parsed(value), "--stop-timeout", command.place());
            }
        }
    }
    for variables in merging::values(service, "environment") {
        for item in variables.items() {
            let pair = item.text().and_then(|text| text.split_once('='));
            if let Some((_, value)) = pair.filter(|(name, _)| *name == variable) {
                return (parsed(value), variable, item.place());
            }
        }
        if let Some(value) = variables.get(variable) {
            return (value.text().and_then(parsed), variable, value.place());
        }
    }
    let place = service.last().map_or_else(crate::check::place::Place::start, Node::place);
    (None, variable, place)
}

fn opts_out(layers: &[Node<'_>]) -> bool {
    merging::values(layers, "labels").iter().any(|labels| {
        let listed = labels.items();
        let listed =
            listed.iter().filter_map(Node::text).any(|text| text == format!("{OPT_OUT}=false"));
        listed || labels.text_of(OPT_OUT) == Some("false")
    })
}
