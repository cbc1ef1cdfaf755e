//! Tests of the cluster: the stores, members, singletons and processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod akka;
mod chaos;
mod configured;
mod conformance;
mod endings;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod etcd;
mod files;
mod members;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod nodes;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod postgres;
#[cfg(all(target_os = "linux", feature = "etcd", feature = "postgres"))]
mod real;
mod served;
mod singletons;
mod stage;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod traps;
mod visible;
