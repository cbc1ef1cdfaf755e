//! The texts a configuration can be written in.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::ConfigError;

/// A format that a configuration can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.json`
    Json,
    /// `.conf`, as Akka reads it. Needs the feature `hocon`.
    Hocon,
}

// === impl Format ===

impl Format {
    /// The format of a file, by its ending.
    ///
    /// # Errors
    ///
    /// If the ending is not `.toml`, `.json`, `.conf` or `.hocon`.
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

    pub(super) fn parse(self, text: &str) -> Result<Value, ConfigError> {
        let syntax = |problem: String| ConfigError::Syntax { format: self, problem };
        match self {
            Self::Toml => toml::from_str(text)
                .map_err(|error| syntax(error.to_string().trim_end().to_owned())),
            Self::Json => serde_json::from_str(text).map_err(|error| syntax(error.to_string())),
            Self::Hocon => hocon(text, syntax),
        }
    }

    /// Whether a duration without a unit is milliseconds, as HOCON has it.
    pub(super) fn bare_numbers_are_millis(self) -> bool {
        self == Self::Hocon
    }
}

#[cfg(feature = "hocon")]
fn hocon(text: &str, syntax: impl Fn(String) -> ConfigError) -> Result<Value, ConfigError> {
    let parsed = hocon::parse(text).map_err(|error| syntax(error.to_string()))?;
    parsed.deserialize().map_err(|error| syntax(error.to_string()))
}

#[cfg(not(feature = "hocon"))]
fn hocon(_text: &str, _syntax: impl Fn(String) -> ConfigError) -> Result<Value, ConfigError> {
    Err(ConfigError::NoHocon)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
            Self::Hocon => "HOCON",
        })
    }
}
