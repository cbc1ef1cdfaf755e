//! Counts allocated memory, for the benches that measure memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An allocator that counts, if it is the global one.
#[derive(Debug)]
pub struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// Returns how many bytes are allocated now.
#[must_use]
pub fn allocated() -> f64 {
    ALLOCATED.load(Ordering::Relaxed) as f64
}

// SAFETY: forwards every call to the system's allocator, and counts in addition.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
