//! A value for each thread, so that threads which write do not share a cache line.
//!
//! A thread has a number that no other living thread has ([`ThreadIndex`]). The first [`STRIPES`] numbers have a value
//! of their own, which only that thread writes. All other threads share one value, under a lock.

use std::sync::{Mutex, OnceLock};

use adieu_core::adapter::ThreadIndex;
pub(crate) use adieu_core::adapter::lock;

/// More than most programs have threads that call a policy.
const STRIPES: usize = 64;

/// One `T` for each thread.
pub(crate) struct Striped<T> {
    /// Made when their thread first needs them: there may be thousands of these, by key.
    own: [OnceLock<Box<CacheAligned<T>>>; STRIPES],
    shared: CacheAligned<T>,
    /// Held by the thread that writes to `shared`.
    sharing: Mutex<()>,
}

/// A value on cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct CacheAligned<T>(T);

// === impl Striped ===

impl<T: Default> Striped<T> {
    pub(crate) fn new() -> Self {
        Self {
            own: [const { OnceLock::new() }; STRIPES],
            shared: CacheAligned::default(),
            sharing: Mutex::new(()),
        }
    }

    /// Calls `write` with the value of this thread. No other thread is in `write` for that value.
    #[inline]
    pub(crate) fn write<R>(&self, write: impl FnOnce(&T) -> R) -> R {
        match self.own.get(ThreadIndex::current().get()).and_then(OnceLock::get) {
            Some(own) => write(&own.0),
            None => self.write_first(write),
        }
    }

    #[cold]
    fn write_first<R>(&self, write: impl FnOnce(&T) -> R) -> R {
        match self.own.get(ThreadIndex::current().claimed().get()) {
            Some(own) => write(&own.get_or_init(Box::default).0),
            None => {
                let _sharing = lock(&self.sharing);
                write(&self.shared.0)
            }
        }
    }

    /// Returns the values of all threads. Other threads may be writing to theirs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let own = self.own.iter().filter_map(OnceLock::get).map(|own| &own.0);
        own.chain([&self.shared.0])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Loads and stores: an increment is lost if two threads have the same value.
    fn add_alone(count: &AtomicUsize) {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    #[test]
    fn no_increment_is_lost_with_more_threads_than_stripes() {
        const THREADS: usize = STRIPES + 30;
        let counts = Striped::<AtomicUsize>::new();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..1_000).for_each(|_| counts.write(add_alone)));
                }
            });
        }
        let sum: usize = counts.iter().map(|count| count.load(Ordering::Acquire)).sum();
        assert_eq!(sum, 3 * THREADS * 1_000);
    }
}
