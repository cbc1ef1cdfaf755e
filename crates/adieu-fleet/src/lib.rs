#![doc = include_str!("../README.md")]

mod file;
mod lease;
mod lock;
mod locks;
mod memory;
mod names;
#[cfg(feature = "redis")]
mod redis;
mod spec;
mod time;

pub use file::Files;
pub use lease::{Lease, Loss, Lost, MarkError, ReleaseError};
pub use lock::{AcquireError, Lock};
pub use locks::{
    Attempt, BackendError, BoxError, Claim, Fence, Holder, Locks, Marker, Reply, Standing,
};
pub use memory::Memory;
pub use names::{Key, NameError, Owner};
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use spec::{LockSpec, SpecError};
