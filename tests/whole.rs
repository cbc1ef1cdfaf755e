//! Tests of the whole workspace: real processes, and the documents.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod clustered;
mod composed;
mod documents;
mod exit_guard;
mod hostile;
mod kept;
mod modules;
mod orders;
mod process;
mod resilient;
mod rolling;
mod supervised;
mod units;
