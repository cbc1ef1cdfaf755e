//! Tests of the cluster: the stores, and what is built on them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod conformance;
mod members;
mod processes;
mod singletons;
mod stage;
