//! The promises of a policy, on a paused clock unless a test needs real threads.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod breakers;
mod building;
mod calls;
mod configured;
mod draining;
mod http;
mod keys;
mod layers;
mod retries;
mod tools;
