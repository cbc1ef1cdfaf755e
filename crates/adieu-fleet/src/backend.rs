//! The stores of locks, one module for each.

mod at_start_up;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

pub(crate) use at_start_up::AtStartUp;
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use file::Files;
pub use memory::Memory;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresSession, announced_session, is_permanent};
#[cfg(feature = "redis")]
pub use redis::Redis;
