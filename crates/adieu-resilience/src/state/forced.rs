//! Whether a policy was opened by hand, until when, and the name of the requester.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::striped::lock;

/// A policy that was opened by hand. Times are nanoseconds since an origin of the caller's choice.
#[derive(Default)]
pub(super) struct ForcedHere {
    /// The instant until which every call is refused; zero if none.
    until: AtomicU64,
    by: Mutex<Option<Arc<str>>>,
}

/// A change for the calls of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForceChange {
    Opened,
    Released,
}

// === impl ForcedHere ===

impl ForcedHere {
    #[inline]
    pub(super) fn until(&self) -> u64 {
        self.until.load(Ordering::Acquire)
    }

    pub(super) fn by(&self) -> Option<Arc<str>> {
        lock(&self.by).clone()
    }

    /// Refuses every call until then, or ends that with zero. Returns the change. The same request
    /// again is no change, and neither is a release after the time has elapsed.
    pub(super) fn set(&self, now: u64, until: u64, by: Option<&str>) -> Option<ForceChange> {
        let mut known = lock(&self.by);
        let (was_forced, is_forced) = (self.until() > now, until > now);
        let is_known = known.as_deref() == by;
        *known = by.filter(|_| is_forced).map(Into::into);
        self.until.store(until, Ordering::Release);
        match (was_forced, is_forced) {
            (true, true) if is_known => None,
            (_, true) => Some(ForceChange::Opened),
            (true, false) => Some(ForceChange::Released),
            (false, false) => None,
        }
    }
}
