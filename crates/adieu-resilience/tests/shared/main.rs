//! Policies that processes share through a real Redis. Everything here runs in real time, so the
//! tests assert only facts that a busy machine cannot change, and print their measurements. Exact
//! times are asserted on the paused clock, in `src/sync/tests.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "replicas report on their output, tests print figures")]

mod cluster;
mod fleet_outages;
mod lag;
mod many_keys;
mod outages;
mod processes;
mod replica;
mod trips;
