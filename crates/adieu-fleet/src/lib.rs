#![doc = include_str!("../README.md")]

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod lease;
mod lock;
mod locks;
mod memory;
mod names;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod spec;
mod time;

#[cfg(feature = "etcd")]
pub use etcd::Etcd;
/// The client that [`Etcd`] takes, in the version that it takes.
#[cfg(feature = "etcd")]
pub use etcd_client;
pub use file::Files;
pub use lease::{Lease, Loss, Lost, MarkError, ReleaseError};
pub use lock::{AcquireError, Lock};
pub use locks::{
    Attempt, BackendError, BoxError, Claim, Fence, Holder, Locks, Marker, Reply, Standing,
};
pub use memory::Memory;
pub use names::{Key, NameError, Owner};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresSession};
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use spec::{LockSpec, SpecError};
