//! Re-exports the atomics of this crate, so that loom can replace them, and locks mutexes.

#[cfg(adieu_loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(adieu_loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

mod ordered;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use ordered::{OrderedMutex, Place, assert_none_held};

/// Locks the mutex, even if a thread has panicked while it held the lock.
///
/// Values behind our locks are changed in single steps, so a panic leaves them consistent, and a
/// shutdown must continue after a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
