//! Parses HOCON, the format of Akka.

#[cfg(feature = "hocon")]
mod expansion;
#[cfg(feature = "hocon")]
mod limits;

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::ConfigError;

/// Parses a text. Substitutions take only `vars`, never the environment of this process. Files that
/// the text includes are searched in `folder`.
#[cfg(feature = "hocon")]
pub(super) fn parse(
    text: &str,
    folder: Option<&Path>,
    vars: HashMap<String, String>,
    syntax: impl Fn(String) -> ConfigError,
) -> Result<Value, ConfigError> {
    expansion::of(text, folder).and_then(|all| all.check(&vars)).map_err(&syntax)?;
    let mut options = hocon::ParseOptions::defaults().with_env(vars);
    if let Some(folder) = folder {
        options = options.with_base_dir(folder.to_owned());
    }
    let parsed = hocon::parse_string_with_options(text, options)
        .map_err(|error| syntax(error.to_string()))?;
    parsed.deserialize().map_err(|error| syntax(error.to_string()))
}

/// Returns the names of the environment variables that the text substitutes.
#[cfg(feature = "hocon")]
pub(super) fn variables(
    text: &str,
    folder: Option<&Path>,
    syntax: impl Fn(String) -> ConfigError,
) -> Result<Vec<String>, ConfigError> {
    Ok(expansion::of(text, folder).map_err(syntax)?.variables())
}

#[cfg(not(feature = "hocon"))]
pub(super) fn parse(
    _text: &str,
    _folder: Option<&Path>,
    _vars: HashMap<String, String>,
    _syntax: impl Fn(String) -> ConfigError,
) -> Result<Value, ConfigError> {
    Err(ConfigError::NoHocon)
}

#[cfg(not(feature = "hocon"))]
pub(super) fn variables(
    _text: &str,
    _folder: Option<&Path>,
    _syntax: impl Fn(String) -> ConfigError,
) -> Result<Vec<String>, ConfigError> {
    Err(ConfigError::NoHocon)
}
