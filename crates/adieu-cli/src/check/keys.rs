//! The keys of manifests, each known to be read by the check or to have no effect on stopping.
//!
//! Each platform has tables of the keys of its objects, taken from its published schema. A key in no
//! table may be misspelt, so that the platform ignores it, or may be new, so that its effect is not
//! known. In both cases the answer `fits` would be a guess, so the answer is `unknown`.

pub(crate) mod compose;
pub(crate) mod ecs;
pub(crate) mod fly;
pub(crate) mod kubernetes;
pub(crate) mod nomad;
pub(crate) mod quadlet;
pub(crate) mod supervisord;
pub(crate) mod systemd;

use std::collections::HashSet;
use std::sync::OnceLock;

use super::ini::{Ini, Setting};
use super::place::{Finding, Fix, Level, Place};
use super::tree::Node;

/// The option of the check with which a user states that a key has no effect on stopping.
pub(crate) const IGNORE: &str = "--ignore-key";

/// Objects in objects: no manifest is nested more deeply.
const DEEPEST: usize = 16;

/// More findings about keys are of no use. An alias of YAML may repeat one object any number of times.
const MOST_FINDINGS: usize = 20;

/// The keys of one kind of object.
pub(crate) struct Keys {
    /// The name of the object in messages.
    object: &'static str,
    /// The keys that the check reads, separated by spaces.
    read: &'static str,
    /// The keys that have no effect on how a process is stopped, separated by spaces.
    harmless: &'static str,
    /// The objects within, or in a list within, whose keys are known, too.
    inner: &'static [(&'static str, &'static Keys)],
    /// The prefix of the keys that the format leaves to its users.
    extension: Option<&'static str>,
    /// Whether a key may begin with a capital letter instead.
    is_capitalised: bool,
    known: OnceLock<HashSet<&'static str>>,
}

// === impl Keys ===

impl Keys {
    pub(crate) const fn new(
        object: &'static str,
        read: &'static str,
        harmless: &'static str,
    ) -> Self {
        Self {
            object,
            read,
            harmless,
            inner: &[],
            extension: None,
            is_capitalised: false,
            known: OnceLock::new(),
        }
    }

    pub(crate) const fn with(mut self, inner: &'static [(&'static str, &'static Self)]) -> Self {
        self.inner = inner;
        self
    }

    pub(crate) const fn extended_by(mut self, prefix: &'static str) -> Self {
        self.extension = Some(prefix);
        self
    }

    pub(crate) const fn capitalised(mut self) -> Self {
        self.is_capitalised = true;
        self
    }

    /// Returns a key in the spelling of the table.
    fn spelling(&self, key: &str) -> String {
        let mut letters = key.chars();
        match letters.next() {
            Some(first) if self.is_capitalised => first.to_lowercase().chain(letters).collect(),
            Some(_) | None => key.to_owned(),
        }
    }

    fn is_known(&self, key: &str) -> bool {
        let all = || self.read.split(' ').chain(self.harmless.split(' ')).collect();
        self.known.get_or_init(all).contains(self.spelling(key).as_str())
            || self.extension.is_some_and(|prefix| key.starts_with(prefix))
    }

    fn finding(&self, key: &str, place: Place) -> Finding {
        let problem =
            format!("{key} is not a key of {} whose effect on stopping is known here", self.object);
        let advice = format!(
            "correct its spelling, or pass {IGNORE} {key} if it has no effect on how the process is \
             stopped"
        );
        Finding::new(Level::Unknown, place, problem, advice).fixed_by(Fix::Key(key.to_owned()))
    }
}

/// Returns a finding for each key of an object, and of the objects in it, that is in no table. A list
/// stands for its items.
pub(crate) fn unknown(object: &Node<'_>, keys: &Keys) -> Vec<Finding> {
    let mut findings = Vec::new();
    add_unknown(object, keys, DEEPEST, &mut findings);
    findings
}

fn add_unknown(object: &Node<'_>, keys: &Keys, depth: usize, findings: &mut Vec<Finding>) {
    let Some(depth) = depth.checked_sub(1).filter(|_| findings.len() < MOST_FINDINGS) else {
        return;
    };
    for item in object.items() {
        add_unknown(&item, keys, depth, findings);
    }
    for (key, value) in object.entries() {
        if !keys.is_known(key) {
            findings.push(keys.finding(key, value.place()));
        }
        let spelling = keys.spelling(key);
        if let Some((_, inner)) = keys.inner.iter().find(|(name, _)| *name == spelling) {
            add_unknown(&value, inner, depth, findings);
        }
    }
}

/// Returns a finding for each of these settings that is not in the table.
pub(crate) fn unknown_settings<'a>(
    settings: impl Iterator<Item = &'a Setting>,
    keys: &Keys,
) -> Vec<Finding> {
    let unknown = settings.filter(|setting| !keys.is_known(&setting.key));
    unknown
        .take(MOST_FINDINGS)
        .map(|setting| keys.finding(&setting.key, setting.place.clone()))
        .collect()
}

/// Returns a finding for each section whose name is not known. Programs ignore such sections.
pub(crate) fn unknown_sections(file: &Ini, is_known: impl Fn(&str) -> bool) -> Vec<Finding> {
    let unknown = file.sections.iter().filter(|section| !is_known(&section.name));
    let findings = unknown.take(MOST_FINDINGS).map(|section| {
        let name = &section.name;
        let problem = format!("[{name}] is not a section whose effect on stopping is known here");
        let advice = format!(
            "correct its spelling, or pass {IGNORE} {name} if it has no effect on how the process is \
             stopped"
        );
        let finding = Finding::new(Level::Unknown, section.place.clone(), problem, advice);
        finding.fixed_by(Fix::Key(name.clone()))
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<&'static Keys> {
        let mut open: Vec<&'static Keys> =
            kubernetes::KINDS.iter().map(|(_, keys)| *keys).collect();
        open.extend([
            &compose::FILE,
            &compose::SERVICE,
            &ecs::TASK,
            &fly::APP,
            &nomad::JOB,
            &nomad::JSON_JOB,
            &quadlet::CONTAINER,
            &supervisord::PROGRAM,
            &supervisord::SUPERVISORD,
            &systemd::UNIT,
            &systemd::SERVICE,
        ]);
        let mut all = Vec::new();
        while let Some(keys) = open.pop() {
            open.extend(keys.inner.iter().map(|(_, inner)| *inner));
            all.push(keys);
        }
        all
    }

    #[test]
    fn s1030_each_key_is_in_one_list_and_is_separated_by_one_space() {
        for keys in all() {
            let mut seen = HashSet::new();
            for key in keys.read.split(' ').chain(keys.harmless.split(' ')) {
                let is_empty_list = keys.read.is_empty() || keys.harmless.is_empty();
                assert!(!key.is_empty() || is_empty_list, "{}", keys.object);
                assert!(seen.insert(key), "{key} of {} is listed twice", keys.object);
            }
            for (key, _) in keys.inner {
                assert!(seen.contains(key), "{key} of {} is in no list", keys.object);
            }
        }
    }
}
