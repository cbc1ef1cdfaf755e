//! The shards that this node owns, and how it gives them away.

mod admission;
mod machine;

pub(crate) use admission::{Admission, Arrival, Decision};
pub(crate) use machine::{Held, Regions, ShardState};
