//! For the command, which checks configurations without a cluster. Applications do not need it.

pub use crate::config::validate as validate_config;
