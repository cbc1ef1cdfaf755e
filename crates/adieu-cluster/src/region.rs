//! The shards that this node owns, and how it gives them away.

mod machine;

pub(crate) use machine::{Held, Regions, ShardState};
