//! Reads and parses a configuration, in any format.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::{ConfigError, Format, hocon};

/// The size limit of a configuration file, in bytes.
const LARGEST: u64 = 4 * 1024 * 1024;

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

    /// Reads a file in this format.
    pub(super) fn read(self, path: &Path) -> Result<Value, ConfigError> {
        let text = read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        self.parse_at(&text, path.parent())
    }

    pub(super) fn parse(self, text: &str) -> Result<Value, ConfigError> {
        self.parse_at(text, None)
    }

    /// Parses a text. Files that it includes are searched in `folder`.
    fn parse_at(self, text: &str, folder: Option<&Path>) -> Result<Value, ConfigError> {
        let syntax = |problem: String| ConfigError::Syntax { format: self, problem };
        match self {
            Self::Toml => toml::from_str(text)
                .map_err(|error| syntax(error.to_string().trim_end().to_owned())),
            Self::Json => serde_json::from_str(text).map_err(|error| syntax(error.to_string())),
            Self::Hocon => hocon::parse(text, folder, syntax),
        }
    }
}

/// Reads a regular file of limited size. Reading a fifo or a device might never end.
fn read_text(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LARGEST) {
        let problem = format!("larger than {} MiB", LARGEST / 1024 / 1024);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}
