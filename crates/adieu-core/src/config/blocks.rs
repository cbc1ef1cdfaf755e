//! Tables of a configuration that belong to other crates. They are kept here, and read there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::section::Section;
use super::vars::Origins;
use super::{ConfigError, Format};

/// The tables that other crates read. In a file they stand beside `coordinated-shutdown`; a variable
/// names them as if they were inside.
pub(super) const NAMES: &[&str] = &["resilience", "cluster"];

/// The tables of other crates in one configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    tables: Map<String, Value>,
    bare_numbers_are_millis: bool,
    origins: Origins,
    file: Option<PathBuf>,
}

/// A table of a configuration whose keys are read one by one. A key that is not read is an error.
#[derive(Debug)]
pub struct Block<'a>(Section<'a>);

/// Takes the tables of other crates out of a document or a block.
pub(super) fn take(document: &mut Value) -> Map<String, Value> {
    let tables = document.as_object_mut().into_iter().flat_map(|document| {
        NAMES.iter().filter_map(|name| Some(((*name).to_owned(), document.remove(*name)?)))
    });
    tables.collect()
}

/// Puts tables into the block of the shutdown, where variables can override their keys.
pub(super) fn put_into(
    block: &mut Map<String, Value>,
    tables: Map<String, Value>,
) -> Result<(), ConfigError> {
    for (name, table) in tables {
        if block.insert(name.clone(), table).is_some() {
            let problem = format!("{name} is there twice: keep the one outside of the block");
            return Err(ConfigError::Contradiction { problem });
        }
    }
    Ok(())
}

// === impl Blocks ===

impl Blocks {
    pub(super) fn new(tables: Map<String, Value>, format: Format, origins: Origins) -> Self {
        let bare_numbers_are_millis = format.bare_numbers_are_millis();
        Self { tables, bare_numbers_are_millis, origins, file: None }
    }

    /// Remembers the file, for error messages.
    pub(super) fn set_file(&mut self, path: &Path) {
        self.file = Some(path.to_owned());
    }

    /// Reads each table under this name. An error names the variable and the file that it is from.
    pub(super) fn read<T>(
        &self,
        name: &'static str,
        read: impl FnMut(&str, &mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        self.read_tables(name, read).map_err(|error| self.explained(error))
    }

    /// Reads the table of this name. An error names the variable and the file that it is from.
    pub(super) fn read_one<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let tables = Value::Object(self.tables.clone());
        let all = Section::new("", &tables, self.bare_numbers_are_millis)?;
        Block(all).table(name, read).map_err(|error| self.explained(error))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tables.contains_key(name)
    }

    fn explained(&self, error: ConfigError) -> ConfigError {
        let error = self.origins.explain("", error);
        match &self.file {
            Some(file) => error.in_file(file),
            None => error,
        }
    }

    fn read_tables<T>(
        &self,
        name: &'static str,
        mut read: impl FnMut(&str, &mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let tables = Value::Object(self.tables.clone());
        let mut all = Section::new("", &tables, self.bare_numbers_are_millis)?;
        let read_one = |(key, section)| {
            let mut block = Block(section);
            let value = read(key, &mut block)?;
            block.0.finish()?;
            Ok(value)
        };
        all.tables(name)?.into_iter().map(read_one).collect()
    }
}

impl PartialEq for Blocks {
    /// Compares the values, not their origins.
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

// === impl Block ===

impl Block<'_> {
    /// Reads a duration.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, ConfigError> {
        self.0.duration(&[name])
    }

    /// Reads a duration, or `off`, which is `None`.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    pub fn duration_or_off(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Option<Duration>>, ConfigError> {
        match self.0.value(&[name])? {
            Some((_, Value::Bool(false))) => Ok(Some(None)),
            Some((_, Value::String(off))) if off == "off" => Ok(Some(None)),
            Some((path, value)) => self.0.as_duration_or(&path, value, "off").map(Some).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the keys of the table.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys()
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, ConfigError> {
        self.0.text(&[name])
    }

    /// Reads a whole number.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    pub fn count(&mut self, name: &'static str) -> Result<Option<u32>, ConfigError> {
        let Some(number) = self.0.integer(&[name])? else { return Ok(None) };
        let count = u32::try_from(number);
        count.map(Some).map_err(|_| self.invalid(name, format!("{number} is out of range")))
    }

    /// Reads a number.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    pub fn number(&mut self, name: &'static str) -> Result<Option<f64>, ConfigError> {
        let Some((_, value)) = self.0.value(&[name])? else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let number = number.filter(|number: &f64| number.is_finite());
        let expected = || self.invalid(name, format!("expected a number, found {value}"));
        number.ok_or_else(expected).map(Some)
    }

    /// Reads the table under this key.
    ///
    /// # Errors
    ///
    /// If it is no table, `read` fails, or a key has not been read.
    pub fn table<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(section) = self.0.table(name)? else { return Ok(None) };
        let mut block = Block(section);
        let value = read(&mut block)?;
        block.0.finish()?;
        Ok(Some(value))
    }

    /// Returns an error if the table has keys that were not read. Call it before reporting a missing key,
    /// which may be present but misspelt.
    ///
    /// # Errors
    ///
    /// If there is such a key.
    pub fn refuse_unknown(&self) -> Result<(), ConfigError> {
        self.0.finish()
    }

    /// Returns an error about the value of this key.
    #[must_use]
    pub fn invalid(&self, name: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { path: self.0.path_of(name), problem: problem.into() }
    }
}
