//! A rate limit: limits how many calls are admitted in a time, and allows a burst.

mod gcra;
mod share;
mod slice;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gcra::LocalState;
#[cfg(any(test, feature = "redis"))]
pub(crate) use gcra::Wait;
pub(crate) use gcra::{Gcra, Shared, Taken};
pub(crate) use share::Share;
pub(crate) use slice::{Permit, Question};

use crate::time::{Instant, LONGEST, nanos};

/// The shortest interval between two permits. Below it, rounding to nanoseconds would show.
const SHORTEST: Duration = Duration::from_nanos(100);

/// Limits how many calls are admitted in a time, and allows a burst.
///
/// In any time T at most `permits · T / per + burst` calls are admitted. A call over the limit does
/// not wait: it is refused, and the refusal names when a permit will be free.
///
/// ```
/// use adieu_resilience::Rate;
/// use std::time::Duration;
///
/// let rate = Rate::per_second(500).burst(50);
/// let slow = Rate::per(10, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a rate does nothing until a policy has it"]
pub struct Rate {
    permits: u32,
    per: Duration,
    burst: Option<u32>,
    without_store: WithoutStore,
}

/// The behaviour of a shared rate limit while its store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithoutStore {
    /// Each replica admits its share: permits and burst are divided by the number of replicas that
    /// were seen in the last 3 s. A replica that has just admitted calls gets no new burst. A
    /// process that has not reached the store since its start counts itself alone, and admits the
    /// whole rate.
    #[default]
    Share,
    /// Every call is admitted.
    Open,
    /// Every call is refused, with the code `store-away`.
    Closed,
}

/// The rate limit of one key of a policy.
pub(crate) struct Limiter {
    gcra: Gcra,
    /// The permits that this process has granted. If the limit is shared, those that it has taken.
    state: Arc<LocalState>,
    pub(crate) without_store: WithoutStore,
    /// Made by the first call that shares the limit.
    share: OnceLock<Arc<Share>>,
}

// === impl Rate ===

impl Rate {
    /// Creates a limit of this many permits in each second.
    pub fn per_second(permits: u32) -> Self {
        Self::per(permits, Duration::from_secs(1))
    }

    /// Creates a limit of this many permits in each `per`.
    pub fn per(permits: u32, per: Duration) -> Self {
        Self { permits, per, burst: None, without_store: WithoutStore::Share }
    }

    /// Sets how many calls are admitted at once after a time without calls. The default is the number
    /// of permits in 100 ms, and at least one.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Sets the behaviour of a shared limit while its store is away; see
    /// [`Policies::shared`](crate::Policies::shared).
    pub fn without_store(mut self, without_store: WithoutStore) -> Self {
        self.without_store = without_store;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { permits, per, burst, without_store: _ } = self;
        if *permits == 0 || *burst == Some(0) {
            return Err("rate: zero permits and a burst of zero refuse every call".into());
        }
        if per.is_zero() || *per > LONGEST {
            return Err(format!("rate: {per:?} is not from 1ns to a year"));
        }
        if *per < SHORTEST.saturating_mul(*permits) {
            return Err(format!(
                "rate: {permits} permits in {per:?} are more than one in {SHORTEST:?}"
            ));
        }
        let burst = burst.unwrap_or(1);
        let restored = (*per / *permits).saturating_mul(burst);
        if restored > LONGEST {
            let days = restored.as_secs() / 86_400;
            return Err(format!(
                "rate: a burst of {burst} is restored after {days} days, which is longer than a year"
            ));
        }
        Ok(())
    }

    pub(crate) fn build(&self, origin: Instant) -> Limiter {
        let per = nanos(self.per);
        let in_100_ms = u64::from(self.permits) * 100_000_000 / per.max(1);
        let burst = self.burst.unwrap_or(u32::try_from(in_100_ms).unwrap_or(u32::MAX).max(1));
        Limiter {
            gcra: Gcra::new(self.permits, per, burst),
            state: Arc::new(LocalState::new(origin)),
            without_store: self.without_store,
            share: OnceLock::new(),
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.per == Duration::from_secs(1) {
            write!(f, "{}/s", self.permits)
        } else {
            write!(f, "{} in {}", self.permits, adieu_core::Short(self.per))
        }
    }
}

// === impl Limiter ===

impl Limiter {
    /// Takes a permit. If none is free, returns how long it takes until one is.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        self.state.update(now, |state, now| self.gcra.take(state, now))
    }

    /// Takes a permit of the share of one of `sharers` replicas.
    pub(crate) fn take_share(&self, now: Instant, replicas: u32) -> Result<(), Duration> {
        let share = self.gcra.share_of(replicas);
        self.state.update(now, |state, now| share.take(state, now))
    }

    /// Returns the slices of this limit. `key` is its key in the store.
    pub(crate) fn share(&self, key: impl FnOnce() -> String) -> &Arc<Share> {
        let new = || Arc::new(Share::new(key(), self.gcra, Arc::clone(&self.state)));
        self.share.get_or_init(new)
    }

    /// Returns whether the limiter no longer limits anything.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.state.is_idle(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn s716_threads_together_get_no_more_than_the_burst() {
        let now = crate::time::now();
        let limiter = Rate::per(1, Duration::from_secs(3_600)).burst(1_000).build(now);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let got = u64::from(limiter.take(now).is_ok());
                        taken.fetch_add(got, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 1_000);
    }

    #[test]
    fn the_burst_is_a_tenth_of_a_second_unless_it_is_set() {
        let now = crate::time::now();
        let burst = |rate: Rate| {
            let limiter = rate.build(now);
            std::iter::from_fn(|| limiter.take(now).ok()).count()
        };
        assert_eq!(burst(Rate::per_second(500)), 50);
        assert_eq!(burst(Rate::per_second(3)), 1);
        assert_eq!(burst(Rate::per_second(3).burst(7)), 7);
    }

    #[test]
    fn an_idle_limiter_is_as_good_as_a_new_one() {
        let now = crate::time::now();
        let limiter = Rate::per_second(10).burst(5).build(now);
        assert!(limiter.is_idle(now));
        limiter.take(now).unwrap();
        assert!(!limiter.is_idle(now + Duration::from_millis(99)));
        assert!(limiter.is_idle(now + Duration::from_millis(100)));
    }
}
