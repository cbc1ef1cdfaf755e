//! Promises S130 and up: locks and leases, on every backend.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod etcd;
mod file;
mod flaky;
mod lease;
mod lock;
mod postgres;
mod redis;
