//! The sender's side of a shard: which messages were sent to its owner, and which wait.

mod machine;
mod message;
mod pause;
mod repeats;

pub(crate) use machine::Route;
pub(crate) use message::{Effect, Kind, NotRun, Outcome, Outgoing, Unknown, Waited};
pub(crate) use repeats::{Failed, Next, Repeats};
