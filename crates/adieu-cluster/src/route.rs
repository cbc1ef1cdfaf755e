//! The sender's side of a shard: which messages were sent to its owner, and which wait.

mod machine;
mod message;

#[cfg_attr(not(test), expect(unused_imports, reason = "regions build on them"))]
pub(crate) use machine::Route;
#[cfg_attr(not(test), expect(unused_imports, reason = "regions build on them"))]
pub(crate) use message::{Effect, Kind, NotRun, Outcome, Outgoing, Unknown, Waited};
