//! Services that stop the containers beside them, with time limits of their own.

use std::time::Duration;

use super::{images, merging, words};
use crate::check::place::Level;
use crate::check::spans;
use crate::check::tree::Node;
use crate::check::workload::OtherStop;

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
        let known = image.as_ref().and_then(Node::text).map(images::short_name);
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
