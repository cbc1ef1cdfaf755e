//! For the command, which checks configurations without policies. Applications do not need it.

use adieu_core::{Config, ConfigError};

use crate::policies::Policies;

/// Checks the keys and values of the policies in a configuration, and starts none.
///
/// # Errors
///
/// If a key is unknown or has a wrong value.
pub fn validate(config: &Config) -> Result<(), ConfigError> {
    Policies::validate(config)
}
