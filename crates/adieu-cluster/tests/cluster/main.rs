//! Tests of the cluster: the stores, and what is built on them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod etcd;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod postgres;
mod served;
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod traps;
