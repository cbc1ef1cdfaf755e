//! Tests of the cluster: the stores, and what is built on them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod configured;
mod conformance;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod etcd;
mod members;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod nodes;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod postgres;
mod processes;
mod served;
mod singletons;
mod stage;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod traps;
mod visible;
