//! The shards that this node owns, and how it gives them away.

#[cfg_attr(not(test), expect(dead_code, reason = "regions build on it"))]
mod admission;
mod machine;

#[cfg_attr(not(test), expect(unused_imports, reason = "regions build on them"))]
pub(crate) use admission::{Admission, Arrival, Decision};
pub(crate) use machine::{Held, Regions, ShardState};
