//! Promises S130 and up: locks and leases, on every backend.
#![expect(clippy::disallowed_methods, reason = "servers and processes live in real time")]
#![expect(clippy::print_stdout, reason = "processes talk to each other, and figures are printed")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod by_name;
mod cancelled;
mod chaos;
mod clocks;
mod conformance;
mod crash;
mod etcd;
mod file;
mod flaky;
mod history;
mod leader;
mod lease;
mod lock;
mod once;
mod outages;
mod permanent;
mod pooler;
mod postgres;
mod processes;
mod redis;
mod replica;
mod singleton;
mod stage;
mod step;
