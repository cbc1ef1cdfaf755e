//! ConfigMaps and Secrets of the same file, which a container uses as variables or as files.

use super::others::Others;
use super::{Document, name_of};
use crate::check::base64;
use crate::check::environment::Environment;
use crate::check::paths;
use crate::check::place::Place;
use crate::check::tree::Node;

/// A key, its value if that can be seen, and where it is.
pub(super) type Entry = (String, Option<String>, Place);

/// The maps that a document can refer to.
pub(super) struct Maps<'a> {
    namespace: Option<String>,
    all: &'a [Document<'a>],
    others: &'a Others,
}

// === impl Maps ===

impl<'a> Maps<'a> {
    /// Returns the maps in the namespace of a document.
    pub(super) fn of(document: &Node<'_>, all: &'a [Document<'a>], others: &'a Others) -> Self {
        Self { namespace: namespace(document), all, others }
    }

    /// Returns a map, or `None` if the file does not contain it exactly once, or if another component
    /// may fill it.
    fn map(&self, kind: &str, name: &str) -> Option<&'a Node<'a>> {
        let mut found = self.all.iter().filter(|document| {
            let other = namespace(&document.at);
            let is_near = other.is_none() || self.namespace.is_none() || other == self.namespace;
            document.kind == kind && name_of(&document.at) == name && is_near
        });
        let map = found.next()?;
        // Two maps have this name, and it cannot be seen which one the platform uses.
        if found.next().is_some() {
            return None;
        }
        Some(&map.at).filter(|map| !self.others.may_fill(map, name))
    }

    /// Returns the entries of a map, or `None` if they cannot be seen.
    fn entries(&self, kind: &str, name: &str) -> Option<Vec<Entry>> {
        let map = self.map(kind, name)?;
        let mut entries = Vec::new();
        for key in keys(kind) {
            for (name, at) in map.get(key).map(|data| data.entries()).unwrap_or_default() {
                entries.push((name.to_owned(), plain(key, kind, &at), at.place()));
            }
        }
        Some(entries)
    }

    /// Returns the value that `valueFrom` refers to, if it can be seen.
    pub(super) fn value(&self, from: &Node<'_>) -> Option<String> {
        let kinds = [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")];
        let (reference, kind) =
            kinds.iter().find_map(|(key, kind)| Some((from.get(key)?, kind)))?;
        let map = self.map(kind, reference.text_of("name")?)?;
        let name = reference.text_of("key")?;
        // The last one counts.
        let (key, at) =
            keys(kind).into_iter().rev().find_map(|key| Some((key, map.find(&[key, name])?)))?;
        plain(key, kind, &at)
    }

    /// Returns the entries of the map that `from` refers to. The first key is for a ConfigMap, the
    /// second for a Secret.
    pub(super) fn referred(
        &self,
        from: &Node<'_>,
        keys: [&str; 2],
        name: &str,
    ) -> Option<Vec<Entry>> {
        let kinds = ["ConfigMap", "Secret"];
        keys.iter().zip(kinds).find_map(|(key, kind)| {
            let name = from.find(&[key, name])?;
            self.entries(kind, name.text()?)
        })
    }
}

/// Returns the key whose values are encoded in base64, and the key whose values are plain.
fn keys(kind: &str) -> [&'static str; 2] {
    match kind {
        "Secret" => ["data", "stringData"],
        _ => ["binaryData", "data"],
    }
}

fn plain(key: &str, kind: &str, at: &Node<'_>) -> Option<String> {
    let text = at.text();
    if key == keys(kind)[0] { text.and_then(base64::decoded) } else { text.map(Into::into) }
}

fn namespace(document: &Node<'_>) -> Option<String> {
    document.find(&["metadata", "namespace"])?.text().map(str::to_owned)
}

/// Adds the files that a container mounts from volumes to its environment.
pub(super) fn mounts(
    container: &Node<'_>,
    spec: &Node<'_>,
    maps: &Maps<'_>,
    environment: &mut Environment,
) {
    let volumes = spec.get("volumes").map(|all| all.items()).unwrap_or_default();
    let mounts = container.get("volumeMounts").map(|all| all.items()).unwrap_or_default();
    let all: Vec<_> = mounts
        .iter()
        .filter_map(|mount| Some(paths::normal(mount.text_of("mountPath")?).path))
        .collect();
    for mount in mounts {
        let Some(path) = mount.text_of("mountPath") else { continue };
        // The volume that is mounted nearest to a file hides it in the others.
        let mut add = |file: &str, text: Option<String>, place: Place| {
            let (own, file) = (paths::normal(path).path, paths::normal(file).path);
            let hides = |other: &&String| {
                let rest = file.strip_prefix(other.as_str());
                other.len() > own.len()
                    && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let is_hidden = all.iter().any(|other| hides(&other));
            environment.mount_below(&file, text.filter(|_| !is_hidden), place, is_hidden);
        };
        let volume = volumes.iter().find(|volume| volume.text_of("name") == mount.text_of("name"));
        // Variables in the name of the file are not replaced here.
        if let Some(part) = mount.get("subPathExpr") {
            add(path, None, part.place());
            continue;
        }
        for (file, text, place) in volume.map(|volume| files(volume, maps)).unwrap_or_default() {
            match mount.text_of("subPath") {
                Some(only) if only == file => add(path, text, place),
                Some(_) => {}
                None => add(&format!("{path}/{file}"), text, place),
            }
        }
    }
}

/// Returns the files of a volume.
fn files(volume: &Node<'_>, maps: &Maps<'_>) -> Vec<Entry> {
    let projected = volume.find(&["projected", "sources"]).map(|all| all.items());
    let sources = projected.unwrap_or_else(|| vec![volume.clone()]);
    let mut files = Vec::new();
    for source in &sources {
        for key in ["configMap", "secret"] {
            let Some(part) = source.get(key) else { continue };
            let name = if part.get("secretName").is_some() { "secretName" } else { "name" };
            let entries = maps.referred(source, ["configMap", "secret"], name).unwrap_or_default();
            let items = part.get("items").map(|items| items.items());
            for (entry, text, place) in entries {
                // If the volume lists items, it contains only these.
                let listed = items
                    .as_ref()
                    .map(|items| items.iter().find(|item| item.text_of("key") == Some(&entry)));
                match listed {
                    None => files.push((entry, text, place)),
                    Some(Some(item)) => {
                        let path = item.text_of("path").unwrap_or(&entry).to_owned();
                        files.push((path, text, place));
                    }
                    Some(None) => {}
                }
            }
        }
    }
    files
}
