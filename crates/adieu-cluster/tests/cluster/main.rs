//! Tests of the cluster: the stores, members, singletons and processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(all(feature = "kameo", feature = "ractor"))]
mod actors;
mod akka;
mod chaos;
#[cfg(any(
    all(target_os = "linux", feature = "etcd", feature = "postgres"),
    all(target_os = "linux", feature = "http", feature = "links")
))]
mod child;
mod configured;
mod conformance;
mod endings;
mod entities;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod etcd;
mod files;
mod foreign;
#[cfg(all(target_os = "linux", feature = "etcd", feature = "postgres", feature = "links"))]
mod linked;
mod members;
mod moves;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod nodes;
mod notes;
mod outcomes;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod postgres;
#[cfg(all(target_os = "linux", feature = "etcd", feature = "postgres"))]
mod real;
mod regions;
#[cfg(feature = "http")]
mod routed;
mod served;
mod shown;
mod singletons;
mod stage;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod traps;
mod visible;
