//! How compose merges files: which ones, and the tags that change how values are merged.

use crate::check::env_file::{self, Dialect, Line};
use crate::check::input::Source;
use crate::check::place::Place;
use crate::check::tree::{Merge, Node};

/// Returns the values of a key that count together, the one that counts most first. The layers are
/// in the same order.
pub(super) fn values<'a>(layers: &[Node<'a>], key: &str) -> Vec<Node<'a>> {
    let mut values = Vec::new();
    for value in layers.iter().filter_map(|layer| layer.entry(key)) {
        match value.merge() {
            Some(Merge::Reset) => break,
            Some(Merge::Override) => {
                values.push(value);
                break;
            }
            None if value.is_null() => {}
            None => values.push(value),
        }
    }
    values
}

/// Returns whether every tag in the file of a document is at a place where it is followed: at a
/// service, at a key of a service, or at a variable.
pub(super) fn is_followed(document: &Node<'_>) -> bool {
    let is_tagged = |at: &Node<'_>| usize::from(at.merge().is_some());
    let mut followed = 0;
    for (_, service) in document.get("services").map(|all| all.entries()).unwrap_or_default() {
        followed += is_tagged(&service);
        for (key, value) in service.entries() {
            match key {
                "extends" => {}
                "environment" => {
                    let variables = value.entries();
                    followed += variables.iter().map(|(_, at)| is_tagged(at)).sum::<usize>();
                    followed += is_tagged(&value);
                }
                _ => followed += is_tagged(&value),
            }
        }
    }
    followed >= document.merges_of_tree()
}

/// Returns the value of `COMPOSE_FILE` in the file `.env` beside a compose file, and its place. There
/// is no value if it cannot be seen.
pub(super) fn named(source: &Source<'_>) -> Option<(Option<String>, Place)> {
    let (file, text) = source.beside(".env").filter(|(_, text)| text.contains("COMPOSE_FILE"))?;
    let place = |line, path: &str| Place { file: Some(file.clone()), ..Place::at(line, path) };
    let named = env_file::read(&text, Dialect::Compose).into_iter().find_map(|(at, line)| {
        match line {
            Line::Set(name, value) if name == "COMPOSE_FILE" => Some((value, place(at, &name))),
            // The rest of the file is not understood, and may set it.
            Line::Odd => Some((None, place(at, ""))),
            Line::Set(..) => None,
        }
    });
    named.filter(|(files, _)| files.as_deref() != Some(""))
}
