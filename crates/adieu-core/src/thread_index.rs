//! Small numbers for threads. No two living threads have the same number.

use std::cell::Cell;
use std::sync::Mutex;

use crate::sync::lock;

/// The numbers that ended threads have returned, and the lowest number that was never used.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// The number of a thread. No other living thread has it, and ended threads return theirs, so numbers
/// stay small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadIndex(usize);

/// Returns the number when the thread ends.
struct Claim(usize);

thread_local! {
    // Separate from the claim, because a thread-local without a destructor is read without a check.
    static INDEX: Cell<usize> = const { Cell::new(ThreadIndex::UNCLAIMED.0) };
    static CLAIM: Claim = Claim::new();
}

// === impl ThreadIndex ===

impl ThreadIndex {
    /// The thread has not claimed a number yet.
    const UNCLAIMED: Self = Self(usize::MAX - 1);
    /// The thread is ending, and has returned its number.
    const NONE: Self = Self(usize::MAX);

    /// Returns the number of this thread. It is no index of any slice if the thread has not claimed one
    /// or is ending.
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        Self(INDEX.get())
    }

    /// Claims a number if the thread has none. A thread that is ending gets none.
    #[must_use]
    pub fn claimed(self) -> Self {
        if self != Self::UNCLAIMED {
            return self;
        }
        let claimed = CLAIM.try_with(|claim| Self(claim.0)).unwrap_or(Self::NONE);
        INDEX.set(claimed.0);
        claimed
    }

    /// Returns the number as an index.
    #[inline]
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }

    #[cfg(all(test, adieu_loom))]
    pub(crate) const fn of(index: usize) -> Self {
        Self(index)
    }
}

// === impl Claim ===

impl Claim {
    fn new() -> Self {
        let mut free = lock(&FREE);
        // Through this lock, the next owner of a number sees the counters that the last owner wrote.
        Self(free.0.pop().unwrap_or_else(|| {
            let next = free.1;
            free.1 += 1;
            next
        }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        INDEX.set(ThreadIndex::NONE.0);
        lock(&FREE).0.push(self.0);
    }
}
