//! Reads and parses a configuration, in any format.

use std::path::Path;

use serde_json::Value;

use super::text_file::text_of;
use super::{ConfigError, Format, hocon};

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
            Self::Toml => toml::from_str(text)
                .map_err(|error| syntax(error.to_string().trim_end().to_owned())),
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
