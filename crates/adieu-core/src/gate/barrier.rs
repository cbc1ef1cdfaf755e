//! A barrier that costs the one who seldom needs it, and not those who always do.
//!
//! Entering must be seen before closing is looked for, and closing before entering is looked for.
//! Both sides would need a full fence, which costs more than all the rest of entering. Instead the
//! closing side makes every thread of the process pass a barrier (`membarrier`), and the entering
//! side only keeps the compiler from reordering. Where the system cannot do that, it says so, and
//! both sides fence.

use crate::sync::{Ordering, fence};

/// On the side that is passed all the time. Orders nothing unless barriers are asymmetric.
#[inline(always)]
pub(super) fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// On the side that is passed once: when this returns, every thread has passed a full barrier, or
/// has to fence for itself.
pub(super) fn heavy() {
    fence(Ordering::SeqCst);
    if is_asymmetric() {
        asymmetric::everywhere();
    }
}

/// Whether `light` is enough on the one side. Always gives the same answer.
pub(super) fn is_asymmetric() -> bool {
    asymmetric::works()
}

#[cfg(all(target_os = "linux", not(adieu_loom), not(miri)))]
mod asymmetric {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
    use tracing::{Level, error};

    use crate::log_thread::log_aside;

    static WORKS: OnceLock<bool> = OnceLock::new();

    pub(super) fn works() -> bool {
        *WORKS.get_or_init(|| {
            let can = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
            let registered = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            // Once it works for a registered process it always does; try it all the same, since
            // a sandbox may allow the one call and refuse the other.
            let passed = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
            can && registered() && passed()
        })
    }

    pub(super) fn everywhere() {
        if let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) {
            // A sandbox has been put up since. What a thread has stored is seen by all within
            // nanoseconds, barrier or not; a millisecond is an age. But nothing guarantees it.
            std::thread::sleep(std::time::Duration::from_millis(1));
            let advice = "allow membarrier, or install the filter before the first gate is made";
            log_aside(Level::ERROR, || move || error!(%error, advice, "membarrier was refused"));
        }
    }
}

#[cfg(not(all(target_os = "linux", not(adieu_loom), not(miri))))]
mod asymmetric {
    pub(super) fn works() -> bool {
        false
    }

    pub(super) fn everywhere() {}
}
