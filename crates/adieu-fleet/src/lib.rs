#![doc = include_str!("../README.md")]

mod file;
mod lease;
mod lock;
mod locks;
mod memory;
mod names;
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
pub use spec::{LockSpec, SpecError};
