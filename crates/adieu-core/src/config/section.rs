//! Reads keys from a table, and stores the table's path and the keys that were read.

use std::time::Duration;

use serde_json::{Map, Value};

use super::ConfigError;
use super::duration;
use crate::names::nearest;

/// Keys that have the same meaning.
pub(super) const EXIT_PROCESS: &[&str] = &["exit-process", "exit-jvm", "exit-clr"];
pub(super) const PROCESS_HOOK: &[&str] =
    &["run-by-process-hook", "run-by-jvm-shutdown-hook", "run-by-clr-shutdown-hook"];

/// The two keys of the drain timeout, which have the same meaning.
pub(super) const DRAIN_TIMEOUT: &[&str] = &["drain-timeout"];
pub(super) const DRAIN_PHASE: &[&str] = &["phases", "service-requests-done", "timeout"];

/// Returns the other path with the same meaning.
pub(super) fn same_path(path: &[String]) -> Option<&'static [&'static str]> {
    let is = |other: &[&str]| path.iter().map(String::as_str).eq(other.iter().copied());
    match () {
        () if is(DRAIN_TIMEOUT) => Some(DRAIN_PHASE),
        () if is(DRAIN_PHASE) => Some(DRAIN_TIMEOUT),
        () => None,
    }
}

/// Returns the other names of a key.
pub(super) fn same_as(key: &str) -> impl Iterator<Item = &'static &'static str> {
    let group = [EXIT_PROCESS, PROCESS_HOOK].into_iter().find(|group| group.contains(&key));
    group.into_iter().flatten().filter(move |other| **other != key)
}

/// A table whose keys are read one by one. Keys that were never read are unknown.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    table: &'a Map<String, Value>,
    known: Vec<&'static str>,
    bare_numbers_are_millis: bool,
}

// === impl Section ===

impl<'a> Section<'a> {
    pub(super) fn new(
        path: &str,
        value: &'a Value,
        bare_numbers_are_millis: bool,
    ) -> Result<Self, ConfigError> {
        let table =
            value.as_object().ok_or_else(|| wrong(path, "a table of keys and values", value))?;
        Ok(Self { path: path.to_owned(), table, known: Vec::new(), bare_numbers_are_millis })
    }

    /// Returns the value of the key that has one of these names. Two of them are an error.
    pub(super) fn value(
        &mut self,
        names: &[&'static str],
    ) -> Result<Option<(String, &'a Value)>, ConfigError> {
        self.known.extend(names);
        let mut found: Option<(String, &'a Value)> = None;
        for name in names {
            let Some(value) = self.table.get(*name).filter(|value| !value.is_null()) else {
                continue;
            };
            let path = self.path_of(name);
            if let Some((other, _)) = found {
                let problem = format!("means the same as {other}: write one of them");
                return Err(ConfigError::Invalid { path, problem });
            }
            found = Some((path, value));
        }
        Ok(found)
    }

    pub(super) fn switch(&mut self, names: &[&'static str]) -> Result<Option<bool>, ConfigError> {
        let found = self.value(names)?;
        found.map(|(path, value)| as_switch(&path, value)).transpose()
    }

    pub(super) fn integer(&mut self, names: &[&'static str]) -> Result<Option<i64>, ConfigError> {
        self.read(names, "a whole number", |value| match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        })
    }

    pub(super) fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, ConfigError> {
        self.read(names, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// Returns a list of names. A string with names separated by commas is also accepted.
    pub(super) fn names(
        &mut self,
        names: &[&'static str],
    ) -> Result<Option<Vec<String>>, ConfigError> {
        self.read(names, "a list of names", |value| match value {
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            Value::String(text) => Some(
                text.split(',')
                    .map(|name| name.trim().to_owned())
                    .filter(|name| !name.is_empty())
                    .collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        })
    }

    pub(super) fn duration(
        &mut self,
        names: &[&'static str],
    ) -> Result<Option<Duration>, ConfigError> {
        let Some((path, value)) = self.value(names)? else {
            return Ok(None);
        };
        self.as_duration(&path, value).map(Some)
    }

    /// Parses the duration of a key that also accepts words, which are added to the error.
    pub(super) fn as_duration_or(
        &self,
        path: &str,
        value: &Value,
        words: &str,
    ) -> Result<Duration, ConfigError> {
        self.as_duration(path, value).map_err(|mut error| {
            if let ConfigError::Invalid { problem, .. } = &mut error {
                problem.push_str(&format!(", or {words}"));
            }
            error
        })
    }

    fn as_duration(&self, path: &str, value: &Value) -> Result<Duration, ConfigError> {
        // Only for numbers: the text of a variable has the same meaning in every format.
        if let (true, Some(millis)) = (self.bare_numbers_are_millis, value.as_u64()) {
            return Ok(Duration::from_millis(millis));
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(wrong(path, "a duration such as 5s", value));
            }
        };
        duration::parse(&text)
            .map_err(|problem| ConfigError::Invalid { path: path.to_owned(), problem })
    }

    /// Returns the table under this key.
    pub(super) fn table(&mut self, name: &'static str) -> Result<Option<Section<'a>>, ConfigError> {
        let found = self.value(&[name])?;
        let millis = self.bare_numbers_are_millis;
        found.map(|(path, value)| Section::new(&path, value, millis)).transpose()
    }

    /// Returns the tables under this key, by name.
    pub(super) fn tables(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<(&'a str, Section<'a>)>, ConfigError> {
        let Some((path, value)) = self.value(&[name])? else {
            return Ok(Vec::new());
        };
        let tables = Section::new(&path, value, self.bare_numbers_are_millis)?;
        let section = |(key, value): (&'a String, &'a Value)| {
            let path = tables.path_of(key);
            Ok((key.as_str(), Section::new(&path, value, self.bare_numbers_are_millis)?))
        };
        tables.table.iter().map(section).collect()
    }

    /// Returns an error if the table has a key that was never read.
    pub(super) fn finish(&self) -> Result<(), ConfigError> {
        match self.table.keys().find(|key| !self.known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(ConfigError::UnknownKey {
                path: self.path_of(key),
                nearest: nearest(key, self.known.iter().copied()).map(|near| self.path_of(near)),
            }),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.table.keys().map(String::as_str)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn read<T>(
        &mut self,
        names: &[&'static str],
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.value(names)? {
            None => Ok(None),
            Some((path, value)) => {
                read(value).map(Some).ok_or_else(|| wrong(&path, expected, value))
            }
        }
    }
}

/// Removes and returns the value at this path of the document.
pub(super) fn take(document: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, before) = path.split_last()?;
    let table = before.iter().try_fold(document, |table, key| table.get_mut(key))?;
    table.as_object_mut()?.remove(*last)
}

/// Parses a switch, in the words of any of the formats.
pub(super) fn as_switch(path: &str, value: &Value) -> Result<bool, ConfigError> {
    let switch = match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) => match text.to_lowercase().as_str() {
            "on" | "yes" | "true" => Some(true),
            "off" | "no" | "false" => Some(false),
            _ => None,
        },
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    };
    switch.ok_or_else(|| wrong(path, "on or off", value))
}

fn wrong(path: &str, expected: &str, found: &Value) -> ConfigError {
    let mut found = found.to_string();
    if let Some((cut, _)) = found.char_indices().nth(60) {
        found.truncate(cut);
        found.push_str("...");
    }
    let path = if path.is_empty() { "the document" } else { path };
    ConfigError::Invalid {
        path: path.to_owned(),
        problem: format!("expected {expected}, found {found}"),
    }
}
