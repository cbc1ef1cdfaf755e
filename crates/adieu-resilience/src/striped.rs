//! A value for each thread, so that threads which write do not share a cache line.
//!
//! A thread has a number that no other living thread has. The first [`STRIPES`] numbers have a value
//! of their own, which only that thread writes. All other threads share one value, under a lock.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// More than most programs have threads that call a policy.
const STRIPES: usize = 64;

/// Numbers of threads that have ended, and the first number that was never used.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// One `T` for each thread.
pub(crate) struct Striped<T> {
    /// Made when their thread first needs them: there may be thousands of these, by key.
    own: [OnceLock<Box<Apart<T>>>; STRIPES],
    shared: Apart<T>,
    /// Held by the thread that writes to `shared`.
    sharing: Mutex<()>,
}

/// A value on cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Apart<T>(T);

/// Frees the thread's number when the thread ends.
struct Claim(usize);

thread_local! {
    // Apart from the claim, because a thread local without a destructor is read without a check.
    static NUMBER: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: Claim = Claim::new();
}

const UNCLAIMED: usize = usize::MAX;
/// The thread is ending and has freed its number.
const NONE: usize = usize::MAX - 1;

// === impl Striped ===

impl<T: Default> Striped<T> {
    pub(crate) fn new() -> Self {
        Self {
            own: [const { OnceLock::new() }; STRIPES],
            shared: Apart::default(),
            sharing: Mutex::new(()),
        }
    }

    /// Calls `write` with the value of this thread. No other thread is in `write` for that value.
    #[inline]
    pub(crate) fn write<R>(&self, write: impl FnOnce(&T) -> R) -> R {
        match self.own.get(NUMBER.get()).and_then(OnceLock::get) {
            Some(own) => write(&own.0),
            None => self.write_first(write),
        }
    }

    #[cold]
    fn write_first<R>(&self, write: impl FnOnce(&T) -> R) -> R {
        match self.own.get(number()) {
            Some(own) => write(&own.get_or_init(Box::default).0),
            None => {
                let _sharing = lock(&self.sharing);
                write(&self.shared.0)
            }
        }
    }

    /// The values of all threads. Other threads may be writing to theirs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let own = self.own.iter().filter_map(OnceLock::get).map(|own| &own.0);
        own.chain([&self.shared.0])
    }
}

/// The number of this thread, which is claimed if it was not.
fn number() -> usize {
    if NUMBER.get() == UNCLAIMED {
        NUMBER.set(CLAIM.try_with(|claim| claim.0).unwrap_or(NONE));
    }
    NUMBER.get()
}

/// Locks, also after a panic: what is locked here is consistent after each statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Claim ===

impl Claim {
    fn new() -> Self {
        let mut free = lock(&FREE);
        // The next owner of a number sees, through this lock, what the previous one has written.
        Self(free.0.pop().unwrap_or_else(|| {
            let next = free.1;
            free.1 += 1;
            next
        }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        NUMBER.set(NONE);
        lock(&FREE).0.push(self.0);
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
