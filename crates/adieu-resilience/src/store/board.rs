//! Decides for the breakers of a fleet. The scripts in `redis/` do the same on a Redis server.
//!
//! Times are microseconds on the clock of the store, which may be set back.
//!
//! # Invariants
//!
//! 1. An open breaker waits for probes after its break. At most `probes` leases are valid at a time,
//!    and each expires, so no replica can keep the breaker open.
//! 2. Generations and the epoch rise with each transition, even if the store has lost everything:
//!    each is at least the time of the transition. If the clock is set back, they rise because a closed
//!    breaker is remembered for at least [`KEPT`] of the new time.
//! 3. A break, a lease and a force last no longer than declared, even if the clock is set back.
//! 4. A snapshot of a generation before the last transition is ignored.
//! 5. The work of one report is bounded, whatever the number of breakers: its answer has at most
//!    [`MOST_NEWS`] changes, those since the epoch that the replica knows, and at most
//!    [`MOST_FORGOTTEN`] fields are forgotten with it.

mod index;

use std::collections::HashMap;
use std::time::Duration;

use self::index::Index;
use super::{Force, Forced, News, Probe, Probed, Report, Settled, Snapshot, Synced, micros};
use crate::breaker::{Ended, Standing, Terms};

/// A snapshot, and a replica, count for this long. Replicas repeat theirs every second.
const FRESH: u64 = 3_000_000;
/// How long it is known that a breaker was closed, or a policy released.
const KEPT: u64 = 60_000_000;
/// The longest force. An open breaker is forgotten this long after its break has ended.
const DAY: u64 = 86_400_000_000;
/// How many changes an answer has at most.
pub(super) const MOST_NEWS: usize = 100;
/// How many fields are forgotten with one report.
const MOST_FORGOTTEN: usize = 32;

/// The fleet's state of its breakers.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    epoch: u64,
    /// The first epoch. What was known before it is lost.
    origin: u64,
    breakers: HashMap<String, Entry>,
    forces: HashMap<String, Mark>,
    /// The fields of breakers and forces, by the epoch of their last change.
    changes: Index,
    /// The same fields, by when they are forgotten.
    forgotten: Index,
    /// By breaker and replica.
    seen: HashMap<String, HashMap<String, Seen>>,
    /// When each replica has last reported.
    replicas: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
enum Entry {
    Open(Open),
    Closed { generation: u64 },
}

#[derive(Clone, Debug)]
struct Open {
    generation: u64,
    ends: u64,
    /// The length of the break: it cannot end later than this after now.
    length: u64,
    reopenings: u32,
    succeeded: u32,
    /// Probes, and when their leases end.
    leases: Vec<(String, u64)>,
}

/// The snapshot of one replica.
#[derive(Clone, Copy, Debug)]
struct Seen {
    generation: u64,
    calls: u64,
    failures: u64,
    is_open: bool,
    at: u64,
}

/// A policy that was forced open, or released.
#[derive(Clone, Debug)]
struct Mark {
    ends: u64,
    /// Zero if it was released.
    length: u64,
    /// Until when this is remembered: as long as a replica may know of a longer force.
    kept: u64,
    by: String,
}

// === impl Board ===

impl Board {
    pub(super) fn sync(&mut self, now: u64, report: &Report) -> Synced {
        let Report { replica, is_leaving, epoch, forces, snapshots } = report;
        if *is_leaving {
            self.replicas.remove(&**replica);
        } else {
            self.replicas.insert(replica.to_string(), now);
        }
        let replicas = self.replicas.values().filter(|at| is_fresh(now, **at)).count();
        for (field, _) in self.forgotten.from(0, now, MOST_FORGOTTEN) {
            self.forget(&field);
        }
        // Forces that the store has lost. A release that it knows of counts more.
        for (policy, Forced { left, by }) in forces {
            if self.mark(now, policy).is_none() {
                self.put_force(now, policy, micros(*left), by);
            }
        }
        for snapshot in snapshots {
            self.report(now, replica, snapshot);
        }
        let (epoch, news) = self.news(now, *epoch);
        Synced { epoch, replicas: u32::try_from(replicas).unwrap_or(u32::MAX), news }
    }

    fn report(&mut self, now: u64, replica: &str, snapshot: &Snapshot) {
        let Snapshot { breaker, generation, calls, failures, is_open, terms, spread } = snapshot;
        let breaker = &**breaker;
        if *calls == 0 && !is_open {
            self.seen.entry(breaker.to_owned()).or_default().remove(replica);
            return;
        }
        let known = match self.standing(now, breaker) {
            Some(Standing::Open { .. }) => return,
            Some(Standing::Closed { generation }) => generation,
            None => 0,
        };
        if *generation < known {
            return;
        }
        let (generation, calls, failures) = (*generation, *calls, *failures);
        let seen = Seen { generation, calls, failures, is_open: *is_open, at: now };
        let windows = self.seen.entry(breaker.to_owned()).or_default();
        windows.insert(replica.to_owned(), seen);
        let is_counted = |seen: &&Seen| is_fresh(now, seen.at) && seen.generation >= known;
        if (*is_open || failures > 0) && is_sick(windows.values().filter(is_counted), terms) {
            self.open(now, breaker, known, 0, terms, *spread);
        }
    }

    pub(super) fn probe(&mut self, now: u64, probe: &Probe) -> Probed {
        let Probe { breaker, id, terms } = probe;
        let lease = micros(terms.lease);
        let standing = self.standing(now, breaker);
        let open = match self.breakers.get_mut(&**breaker) {
            Some(Entry::Open(open)) if open.ends <= now => open,
            _ => return Probed::Standing(standing),
        };
        open.leases.retain(|(_, ends)| *ends > now);
        // A lease that ends later than one granted now can only be due to a clock that was set back.
        // Shorten it.
        open.leases.iter_mut().for_each(|(_, ends)| *ends = (*ends).min(now + lease));
        if open.leases.len() < terms.probes as usize {
            open.leases.push((id.to_string(), now + lease));
            return Probed::Granted { generation: open.generation };
        }
        let soonest = open.leases.iter().map(|(_, ends)| ends - now).min().unwrap_or_default();
        Probed::Busy(Duration::from_micros(soonest))
    }

    pub(super) fn settle(&mut self, now: u64, settled: &Settled) -> Option<Standing> {
        let Settled { probe: Probe { breaker, id, terms }, generation, ended, spread } = settled;
        let breaker = &**breaker;
        if let Some(Entry::Open(open)) = self.breakers.get_mut(breaker)
            && open.generation == *generation
            && let Some(held) =
                open.leases.iter().position(|(held, ends)| *held == **id && *ends > now)
        {
            open.leases.remove(held);
            let (known, reopenings) = (open.generation, open.reopenings);
            match ended {
                Ended::Neutral => {}
                Ended::Failed => {
                    self.open(now, breaker, known, reopenings.saturating_add(1), terms, *spread);
                }
                Ended::Succeeded => {
                    open.succeeded += 1;
                    if open.succeeded >= terms.closes_after {
                        let generation = next(known, now);
                        let closed = Entry::Closed { generation };
                        self.breakers.insert(breaker.to_owned(), closed);
                        self.forgotten.set(breaker_field(breaker), now + KEPT);
                        self.bump(now, breaker_field(breaker));
                    }
                }
            }
        }
        self.standing(now, breaker)
    }

    pub(super) fn force(&mut self, now: u64, force: &Force) {
        let Force { policy, time, by } = force;
        self.put_force(now, policy, micros(*time), by);
    }

    /// A force is remembered after its end, or its release, for as long as a replica may know of a
    /// longer one. Without that, such a replica would bring it back.
    fn put_force(&mut self, now: u64, policy: &str, length: u64, by: &str) {
        let known = self.mark(now, policy).map_or(0, |mark| mark.kept.min(now + DAY));
        let released = if length == 0 { now + KEPT } else { 0 };
        let (ends, kept) = (now + length, known.max(released).max(now + length));
        let mark = Mark { ends, length, kept, by: by.to_owned() };
        self.forces.insert(policy.to_owned(), mark);
        self.forgotten.set(force_field(policy), kept);
        self.bump(now, force_field(policy));
    }

    /// What is known of a policy that was forced open or released. A force that a clock set back has
    /// lengthened is shortened.
    fn mark(&mut self, now: u64, policy: &str) -> Option<&Mark> {
        let mark = self.forces.get_mut(policy)?;
        mark.ends = mark.ends.min(now + mark.length);
        (mark.kept > now).then_some(mark)
    }

    fn open(
        &mut self,
        now: u64,
        breaker: &str,
        known: u64,
        reopenings: u32,
        terms: &Terms,
        spread: f64,
    ) {
        let length = break_of(terms, reopenings, spread);
        let generation = next(known, now);
        let (ends, leases) = (now + length, Vec::new());
        let open = Open { generation, ends, length, reopenings, succeeded: 0, leases };
        self.breakers.insert(breaker.to_owned(), Entry::Open(open));
        self.forgotten.set(breaker_field(breaker), ends + DAY);
        self.seen.remove(breaker);
        self.bump(now, breaker_field(breaker));
    }

    /// Returns the standing of a breaker. A break that a clock set back has lengthened is
    /// shortened.
    fn standing(&mut self, now: u64, breaker: &str) -> Option<Standing> {
        Some(match self.breakers.get_mut(breaker)? {
            Entry::Open(open) => {
                if open.ends > now + open.length {
                    open.ends = now + open.length;
                    self.forgotten.set(breaker_field(breaker), open.ends + DAY);
                }
                let left = Duration::from_micros(open.ends.saturating_sub(now));
                Standing::Open { generation: open.generation, left, reopenings: open.reopenings }
            }
            Entry::Closed { generation } => Standing::Closed { generation: *generation },
        })
    }

    /// Returns the changes since an epoch, and the epoch up to which they reach.
    fn news(&mut self, now: u64, known: u64) -> (u64, Option<News>) {
        if known == self.epoch {
            return (self.epoch, None);
        }
        // The store has lost what the replica has read: an epoch that it has not reached yet, or one of
        // before it began anew.
        let since = if known > self.epoch || known < self.origin { 0 } else { known };
        let mut changes = self.changes.from(since + 1, u64::MAX, MOST_NEWS + 1);
        let has_more = changes.len() > MOST_NEWS;
        changes.truncate(MOST_NEWS);
        let last = changes.last().map_or(self.epoch, |(_, epoch)| *epoch);
        let epoch = if has_more { last } else { self.epoch };
        let mut news = News { is_from_start: since == 0, has_more, ..News::default() };
        for (field, _) in changes {
            if let Some(breaker) = field.strip_prefix("b:")
                && let Some(standing) = self.standing(now, breaker)
            {
                news.breakers.push((breaker.to_owned(), standing));
            } else if let Some(policy) = field.strip_prefix("f:")
                && let Some(Mark { ends, by, .. }) = self.mark(now, policy)
            {
                let left = Duration::from_micros(ends.saturating_sub(now));
                let by = if left.is_zero() { String::new() } else { by.clone() };
                news.forces.push((policy.to_owned(), Forced { left, by }));
            }
        }
        (epoch, Some(news))
    }

    fn forget(&mut self, field: &str) {
        self.changes.remove(field);
        self.forgotten.remove(field);
        field.strip_prefix("b:").map(|breaker| self.breakers.remove(breaker));
        field.strip_prefix("f:").map(|policy| self.forces.remove(policy));
    }

    fn bump(&mut self, now: u64, field: String) {
        let is_first = self.epoch == 0;
        self.epoch = next(self.epoch, now);
        if is_first {
            self.origin = self.epoch;
        }
        self.changes.set(field, self.epoch);
    }
}

fn breaker_field(breaker: &str) -> String {
    format!("b:{breaker}")
}

fn force_field(policy: &str) -> String {
    format!("f:{policy}")
}

/// Returns whether enough witnesses see that the backend fails.
///
/// A replica that has opened its breaker has no calls any more, so its window stays near the ratio, and
/// then empties. Replicas that have opened theirs are therefore enough, whatever the sum of all windows.
fn is_sick<'a>(windows: impl Iterator<Item = &'a Seen>, terms: &Terms) -> bool {
    let exceeds = |failures: u64, calls: u64| failures as f64 >= terms.ratio * calls as f64;
    let (mut calls, mut failures, mut replicas) = (0, 0, 0);
    let (mut witnesses, mut opened) = (0, 0);
    for seen in windows {
        calls += seen.calls;
        failures += seen.failures;
        replicas += 1;
        opened += u32::from(seen.is_open);
        witnesses += u32::from(seen.is_open || exceeds(seen.failures, seen.calls));
    }
    let is_exceeded = calls >= u64::from(terms.calls) && exceeds(failures, calls);
    opened >= terms.witnesses || is_exceeded && witnesses >= terms.witnesses.min(replicas)
}

fn is_fresh(now: u64, at: u64) -> bool {
    at <= now && now - at < FRESH
}

/// Rises always, and is never below the time.
fn next(number: u64, now: u64) -> u64 {
    (number + 1).max(now)
}

/// Returns the length of a break, computed as the scripts do.
fn break_of(terms: &Terms, reopenings: u32, spread: f64) -> u64 {
    let (first, longest) = (micros(terms.opens_for) as f64, micros(terms.at_most) as f64);
    let doubled = (first * f64::from(1_u32 << reopenings.min(31))).min(longest);
    ((doubled * (0.9 + 0.2 * spread)).floor() as u64).max(1)
}
