//! Reads and parses a configuration, in any format.

use std::path::Path;

use serde_json::Value;

use super::text_file::text_of;
use super::{ConfigError, Format, hocon};

/// Parses TOML. A number that JSON does not have becomes its text, so that its key is refused as a
/// wrong value. `Null` in its place would look as if the key was not there.
fn parse_toml(text: &str) -> Result<Value, toml::de::Error> {
    let mut document = toml::from_str(text)?;
    if ["inf", "nan"].iter().any(|name| text.contains(name)) {
        let table = toml::from_str::<toml::Table>(text)?;
        keep_infinite(&mut document, &toml::Value::Table(table));
    }
    Ok(document)
}

fn keep_infinite(value: &mut Value, written: &toml::Value) {
    match (value, written) {
        (value, toml::Value::Float(number)) if !number.is_finite() => {
            *value = Value::String(number.to_string().to_lowercase());
        }
        (Value::Array(values), toml::Value::Array(written)) => {
            let pairs = values.iter_mut().zip(written);
            pairs.for_each(|(value, written)| keep_infinite(value, written));
        }
        (Value::Object(table), toml::Value::Table(written)) => {
            for (key, value) in table {
                if let Some(written) = written.get(key) {
                    keep_infinite(value, written);
                }
            }
        }
        _ => {}
    }
}

// === impl Format ===

impl Format {
    /// Returns the format of a file by its extension.
    ///
    /// # Errors
    ///
    /// If the extension is not `.toml`, `.json`, `.conf` or `.hocon`.
    pub fn of(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
        match ending.as_deref() {
            Some("toml") => Ok(Self::Toml),
            Some("json") => Ok(Self::Json),
            Some("conf" | "hocon") => Ok(Self::Hocon),
            Some(_) | None => Err(ConfigError::UnknownFormat { path: path.to_owned() }),
        }
    }

    /// Reads a file in this format. Its substitutions take `vars`.
    pub(super) fn read(self, path: &Path, vars: &[(String, String)]) -> Result<Value, ConfigError> {
        self.parse_at(&text_of(path)?, path.parent(), vars)
    }

    /// Parses a text. Its substitutions take `vars`.
    pub(super) fn parse(self, text: &str, vars: &[(String, String)]) -> Result<Value, ConfigError> {
        self.parse_at(text, None, vars)
    }

    /// Parses a text. Files that it includes are searched in `folder`.
    fn parse_at(
        self,
        text: &str,
        folder: Option<&Path>,
        vars: &[(String, String)],
    ) -> Result<Value, ConfigError> {
        let syntax = |problem: String| ConfigError::Syntax { format: self, problem };
        match self {
            Self::Toml => {
                parse_toml(text).map_err(|error| syntax(error.to_string().trim_end().to_owned()))
            }
            Self::Json => serde_json::from_str(text).map_err(|error| syntax(error.to_string())),
            Self::Hocon => hocon::parse(text, folder, vars.iter().cloned().collect(), syntax),
        }
    }

    /// Returns the names of the environment variables that a text substitutes.
    pub(super) fn variables(
        self,
        text: &str,
        folder: Option<&Path>,
    ) -> Result<Vec<String>, ConfigError> {
        match self {
            Self::Toml | Self::Json => Ok(Vec::new()),
            Self::Hocon => hocon::variables(text, folder, |problem| ConfigError::Syntax {
                format: self,
                problem,
            }),
        }
    }
}
