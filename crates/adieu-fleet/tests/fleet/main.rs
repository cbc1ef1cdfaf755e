//! Promises about locks and leases, on every backend.
#![expect(clippy::disallowed_methods, reason = "servers and processes run in real time")]
#![expect(clippy::print_stdout, reason = "replicas report on stdout, and figures are printed")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

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
mod support;
