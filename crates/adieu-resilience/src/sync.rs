//! Decides what this process reports to its fleet, and when.

mod driver;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use driver::{Driver, drive};

use crate::breaker::{Terms, WindowCount};
use crate::store::Snapshot;
use crate::time::Instant;

/// From one report to the next, before it is varied by a fifth.
const TICK: Duration = Duration::from_millis(100);
/// The shortest time from one report to the next.
const SOONEST: Duration = Duration::from_millis(20);
/// A snapshot that has not changed is repeated after this time. The store removes it after three
/// times as long.
const REPEAT: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to reach a store that is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// After a store has answered for this long, it counts as stable. If it goes away earlier, the pauses
/// continue to grow: each time that it is back, the calls that ask it may wait in vain.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// How long fewer replicas must be seen until each takes a larger share. A store that has just lost its
/// data sees only the replicas that have reported since.
const FEWER_FOR: Duration = Duration::from_secs(3);

/// When the next report is due.
#[derive(Clone, Copy, Debug)]
struct Cadence {
    last: Option<Instant>,
    due: Instant,
    /// The pause after the next request that is not answered.
    pause: Duration,
    /// The instant since which the store has answered. `None` while it is away, and before the
    /// first answer.
    answers_since: Option<Instant>,
    is_away: bool,
}

/// By how many replicas a rate limit is divided while the store is away.
#[derive(Clone, Copy, Debug)]
struct Sharers {
    count: u32,
    /// The instant since which fewer replicas have been seen.
    fewer_since: Option<Instant>,
}

/// The snapshots that the store has.
#[derive(Debug, Default)]
struct Sent {
    by_breaker: HashMap<Arc<str>, (WindowCount, Option<Instant>)>,
}

/// How much the store may still be asked to do with one report. Redis does nothing else meanwhile: with
/// all of it, a script takes about a millisecond. The units are roughly microseconds.
#[derive(Clone, Copy, Debug)]
struct Work {
    left: u32,
    replicas: u32,
}

// === impl Work ===

impl Work {
    fn new(replicas: u32) -> Self {
        Self { left: 400, replicas }
    }

    fn is_used_up(self) -> bool {
        self.left == 0
    }

    fn add(&mut self, snapshot: &Snapshot) {
        let Snapshot { calls, failures, is_open, .. } = *snapshot;
        let units = match (calls, failures) {
            (0, _) if !is_open => 2,
            (_, 0) if !is_open => 5,
            // The store reads the windows of all replicas.
            _ => 10 + self.replicas,
        };
        self.left = self.left.saturating_sub(units);
    }
}

// === impl Cadence ===

impl Cadence {
    fn new(now: Instant) -> Self {
        Self { last: None, due: now, pause: TICK, answers_since: None, is_away: false }
    }

    /// Records that a report is sent now. `spread` is from zero to one.
    fn on_sent(&mut self, now: Instant, spread: f64) {
        self.last = Some(now);
        self.due = now + TICK.mul_f64(0.8 + 0.4 * spread);
    }

    /// Records that the store has answered the report.
    fn on_answer(&mut self, now: Instant) {
        self.is_away = false;
        let since = *self.answers_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= STABLE_AFTER {
            self.pause = TICK;
        }
    }

    /// Records that the store has not answered, and postpones the next report.
    fn on_failure(&mut self, now: Instant) {
        self.is_away = true;
        self.answers_since = None;
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Makes the next report earlier, because there is news. Does nothing while the store is away.
    fn hurry(&mut self) {
        if !self.is_away {
            let soonest = self.last.map_or(self.due, |last| last + SOONEST);
            self.due = self.due.min(soonest);
        }
    }
}

// === impl Sharers ===

impl Sharers {
    fn new(count: u32) -> Self {
        Self { count, fewer_since: None }
    }

    /// Records the number of replicas that the store reported. Returns the number by which a limit
    /// is divided.
    fn on_seen(&mut self, now: Instant, replicas: u32) -> u32 {
        if replicas >= self.count {
            *self = Self::new(replicas);
        } else {
            let since = *self.fewer_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= FEWER_FOR {
                *self = Self::new(replicas);
            }
        }
        self.count
    }
}

// === impl Sent ===

impl Sent {
    /// Returns the report to send for a breaker, if it has changed or the store would forget it. A
    /// process that is no witness takes everything back.
    fn snapshot(
        &mut self,
        now: Instant,
        is_witness: bool,
        breaker: &Arc<str>,
        sight: WindowCount,
        terms: Terms,
    ) -> Option<Snapshot> {
        let nothing = WindowCount { calls: 0, failures: 0, is_open: false, ..sight };
        let sight = if is_witness { sight } else { nothing };
        let is_due = match self.by_breaker.get(breaker) {
            None => sight.shows_anything(),
            Some((_, None)) => true,
            Some((sent, Some(at))) => {
                let is_old = now.saturating_duration_since(*at) >= REPEAT;
                *sent != sight || (is_old && sight.shows_anything())
            }
        };
        if !is_due {
            return None;
        }
        let WindowCount { calls, failures, is_open, generation } = sight;
        self.by_breaker.insert(Arc::clone(breaker), (sight, Some(now)));
        let (breaker, spread) = (Arc::clone(breaker), fastrand::f64());
        Some(Snapshot { breaker, generation, calls, failures, is_open, terms, spread })
    }

    /// Returns whether the store may count what this replica has reported for a breaker.
    fn is_counted(&self, breaker: &Arc<str>) -> bool {
        let counted = self.by_breaker.get(breaker);
        counted.is_some_and(|(sent, at)| sent.shows_anything() || at.is_none())
    }

    /// Makes the next report complete, because the last one may be lost.
    fn forget(&mut self) {
        self.by_breaker.values_mut().for_each(|(_, at)| *at = None);
    }

    /// Forgets breakers that no longer exist.
    fn retain(&mut self, breakers: &HashSet<Arc<str>>) {
        self.by_breaker.retain(|breaker, _| breakers.contains(breaker));
    }
}

#[cfg(test)]
mod tests;
