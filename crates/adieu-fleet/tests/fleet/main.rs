//! Promises S130 and up: locks and leases, on every backend.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod etcd;
mod file;
mod flaky;
mod leader;
mod lease;
mod lock;
mod once;
mod postgres;
mod redis;
mod singleton;
