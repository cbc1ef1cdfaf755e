#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod leader;
mod lease;
mod lock;
mod locks;
mod memory;
mod names;
mod once;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod singleton;
mod spec;
mod step;
mod time;
mod turn;
mod work;

#[cfg(feature = "etcd")]
pub use etcd::Etcd;
/// The client that [`Etcd`] takes, in the version that it takes.
#[cfg(feature = "etcd")]
pub use etcd_client;
pub use file::Files;
pub use leader::{LeadError, Leadership, Term};
pub use lease::{Lease, Loss, Lost, MarkError, ReleaseError};
pub use lock::{AcquireError, Lock};
pub use locks::{
    Attempt, BackendError, BoxError, Claim, Fence, Holder, Locks, Marker, Reply, Standing,
};
pub use memory::Memory;
pub use names::{Key, NameError, Owner};
pub use once::{Once, OnceCx};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresSession};
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use singleton::{Others, Turn};
pub use spec::{LockSpec, SpecError};
pub use turn::TurnError;
