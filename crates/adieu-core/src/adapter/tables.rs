//! Tables of a configuration that belong to adapters.

use crate::config::blocks::Block;
use crate::config::{Config, ConfigError};

/// Reads each table under this name.
///
/// # Errors
///
/// If `read` fails, or a key has not been read.
pub fn read_block<T>(
    config: &Config,
    name: &'static str,
    read: impl FnMut(&str, &mut Block<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    config.read_block(name, read)
}

/// Reads the table of this name, if there is one.
///
/// # Errors
///
/// If `read` fails, or a key has not been read.
pub fn read_table<T>(
    config: &Config,
    name: &'static str,
    read: impl FnOnce(&mut Block<'_>) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    config.read_table(name, read)
}

/// Returns whether the configuration has a table of this name.
#[must_use]
pub fn has_table(config: &Config, name: &str) -> bool {
    config.has_table(name)
}
