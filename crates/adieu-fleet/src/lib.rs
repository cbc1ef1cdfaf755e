#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
mod backend;
mod fleet;
mod journal;
mod leader;
mod lease;
mod lock;
mod lock_backend;
mod names;
mod once;
mod singleton;
mod spec;
mod step;
mod time;
mod turn;
mod work;

#[cfg(feature = "etcd")]
pub use backend::Etcd;
#[cfg(feature = "redis")]
pub use backend::Redis;
pub use backend::{Files, Memory};
#[cfg(feature = "postgres")]
pub use backend::{Postgres, PostgresSession};
/// The client library of [`Etcd`], in the version that it uses.
#[cfg(feature = "etcd")]
pub use etcd_client;
pub use fleet::Fleet;
pub use leader::{LeadError, Leadership, Term};
pub use lease::{Lease, LeaseLost, LossCause, MarkError, ReleaseError};
pub use lock::{AcquireError, Lock};
pub use lock_backend::{
    Attempt, BackendError, BoxError, Claim, ClaimStatus, Fence, Holder, LockBackend, Marker, Reply,
};
pub use names::{Key, NameError, Owner};
pub use once::{Once, OnceCx};
/// The client library of [`Redis`], in the version that it uses.
#[cfg(feature = "redis")]
pub use redis;
pub use singleton::{OtherReplicas, Turn};
pub use spec::{LockSpec, SpecError};
/// The client library of [`Postgres`], in the version that it uses, for a custom configuration and
/// TLS.
#[cfg(feature = "postgres")]
pub use tokio_postgres;
pub use turn::TurnError;
