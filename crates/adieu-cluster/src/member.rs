//! This node's own way through the table: join, be up, leave, be removed; or be declared dead.

mod heartbeat;
mod machine;

pub(crate) use heartbeat::{Answer, Heartbeat, Next};
pub(crate) use machine::{Declared, Goal, Member};
pub use machine::{Incompatible, Loss, Stage};
