//! For the command, which checks configurations and shards without a cluster. Applications do not
//! need it.

pub use crate::config::validate as validate_config;
pub use crate::records::split_shard;
