//! How many retries a policy may make, as a share of its calls.
//!
//! Without a budget, a backend that fails every call gets `1 + times` as many of them at the moment
//! at which it can serve the fewest.

use std::sync::Mutex;
use std::time::Duration;

use crate::striped::lock;
use crate::time::Instant;
use crate::window::{Pair, Window};

/// The time for which calls and retries count.
const OVER: Duration = Duration::from_secs(10);

/// How many retries are free in [`OVER`], so that a policy that is rarely called can retry, too.
const FREE: f64 = 10.0;

pub(crate) struct Budget {
    share: f64,
    /// Calls, and how many retries there were.
    window: Window,
    /// Held while the window is read and the retry is counted, so that no two calls spend the same
    /// retry.
    spending: Mutex<()>,
}

// === impl Budget ===

impl Budget {
    pub(crate) fn new(origin: Instant, share: f64) -> Self {
        Self { share, window: Window::new(origin, OVER), spending: Mutex::new(()) }
    }

    /// Counts a call.
    #[inline]
    pub(crate) fn count_call(&self, now: Instant) {
        self.window.add(now, 0, 1, 0);
    }

    /// Counts a retry, if there is budget left for it.
    #[must_use]
    pub(crate) fn spend(&self, now: Instant) -> bool {
        let _spending = lock(&self.spending);
        let Pair { all: calls, some: retries } = self.window.sum(now, 0);
        let allowed = self.share * calls as f64 + FREE;
        let is_left = retries as f64 + 1.0 <= allowed;
        if is_left {
            self.window.add(now, 0, 0, 1);
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn s736_ten_retries_in_ten_seconds_are_free_and_then_a_share_of_the_calls() {
        let now = crate::time::now();
        let budget = Budget::new(now, 0.1);
        let spent = |at| std::iter::from_fn(|| budget.spend(at).then_some(())).count();
        assert_eq!(spent(now), 10);
        for _ in 0..200 {
            budget.count_call(now);
        }
        assert_eq!(spent(now), 20);
        assert_eq!(spent(now + ms(9_999)), 0);
        assert_eq!(spent(now + ms(10_000)), 10);
    }

    proptest! {
        #[test]
        fn s736_in_no_ten_seconds_are_there_more_retries_than_the_budget_allows(
            acts in prop::collection::vec((0u64..700, any::<bool>()), 0..600),
            percent in 0u32..100,
        ) {
            let start = crate::time::now();
            let share = f64::from(percent) / 100.0;
            let budget = Budget::new(start, share);
            let (mut at, mut calls, mut retries) = (0, Vec::new(), Vec::new());
            for (later, is_retry) in acts {
                at += later;
                let now = start + ms(at);
                // Whole buckets of a second leave.
                let inside = |list: &[u64]| list.iter().filter(|then| *then / 1_000 + 9 >= at / 1_000).count();
                if is_retry {
                    let allowed = share * inside(&calls) as f64 + 10.0;
                    let is_left = (inside(&retries) + 1) as f64 <= allowed;
                    prop_assert_eq!(budget.spend(now), is_left);
                    if is_left { retries.push(at); }
                } else {
                    budget.count_call(now);
                    calls.push(at);
                }
            }
        }
    }
}
