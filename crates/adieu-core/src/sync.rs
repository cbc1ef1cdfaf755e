//! The one door to atomics, through which loom can stand in for them.

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

/// Locks, also when a thread has panicked while it held the lock.
///
/// What our locks guard is changed in single steps, so it is whole at any of them; and a shutdown
/// must go on after a panic, not join it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
