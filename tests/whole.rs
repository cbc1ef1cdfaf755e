//! What is tested on the whole: real processes, and what the documents say.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod composed;
mod documents;
mod exit_guard;
mod hostile;
mod kept;
mod modules;
mod orders;
mod process;
mod rolling;
mod supervised;
mod units;
