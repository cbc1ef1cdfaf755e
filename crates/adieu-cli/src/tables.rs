//! The tables of a configuration that other crates read: `[cluster]` and `[resilience]`.
//!
//! Reading a configuration does not check their keys, because a process reads them only when it forms a
//! cluster or starts its policies. The command checks them, so that a misspelt key is found before.

use adieu::{Config, ConfigError};

pub(crate) fn validate(config: &Config) -> Result<(), ConfigError> {
    adieu::cluster::adapter::validate_config(config)?;
    adieu::resilience::adapter::validate(config)
}
