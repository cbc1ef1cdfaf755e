//! Numbers for threads: small, and never two alike at the same time.

use std::cell::Cell;
use std::sync::Mutex;

use crate::sync::lock;

/// Numbers that threads have given back, and the first that none has had.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A thread's number among the threads that live: nobody else has it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadIndex(pub(super) usize);

/// Gives the number back when the thread ends.
struct Claim(usize);

thread_local! {
    // Apart from the claim, because what has no destructor is read without a check.
    static INDEX: Cell<usize> = const { Cell::new(ThreadIndex::UNCLAIMED.0) };
    static CLAIM: Claim = Claim::new();
}

// === impl ThreadIndex ===

impl ThreadIndex {
    /// The thread has not claimed a number yet.
    const UNCLAIMED: Self = Self(usize::MAX - 1);
    /// The thread is at its end, and has given its number back.
    const NONE: Self = Self(usize::MAX);

    /// This thread's number, as far as it has one.
    #[inline]
    pub(super) fn current() -> Self {
        Self(INDEX.get())
    }

    /// The same, but claimed if it was not. Out of all bounds if the thread is at its end.
    pub(super) fn claimed(self) -> Self {
        if self != Self::UNCLAIMED {
            return self;
        }
        let claimed = CLAIM.try_with(|claim| Self(claim.0)).unwrap_or(Self::NONE);
        INDEX.set(claimed.0);
        claimed
    }

    #[cfg(all(test, adieu_loom))]
    pub(super) const fn of(index: usize) -> Self {
        Self(index)
    }
}

// === impl Claim ===

impl Claim {
    fn new() -> Self {
        let mut free = lock(&FREE);
        // What the thread before wrote to its slots is seen by the next through this lock.
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
