//! The promises about serving HTTP, with real sockets and real clients.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "sockets need real time, and clients run in tasks")]

mod admin;
mod answers;
mod client;
mod cuts;
mod descriptors;
mod dropped;
mod grpc;
mod killed;
mod layer;
mod nginx;
mod pages;
mod probes;
mod serving;
mod settings;
mod silent;
mod streams;
mod tls;
#[cfg(target_os = "linux")]
mod unix;
mod upgrades;
mod window;
