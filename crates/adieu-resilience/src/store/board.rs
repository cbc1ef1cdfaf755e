//! Decides for the breakers of a fleet. The scripts in `redis/` do the same on a Redis server.
//!
//! Times are microseconds on the clock of the store, which may be set back.
//!
//! # Invariants
//!
//! 1. An open breaker waits for probes after its break. At most `probes` leases are valid at a time,
//!    and each expires, so no replica can keep the breaker open.
//! 2. Generations and the epoch rise with each transition, even if the store has lost everything:
//!    each is at least the time of the transition. If the clock is set back, they rise because a
//!    closed breaker is kept for [`KEPT`] of the new time.
//! 3. A break, a lease and a force last no longer than declared, even if the clock is set back.
//! 4. A snapshot of a generation before the last transition is ignored.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{FleetState, Force, Forced, Probe, Probed, Report, Settled, Snapshot, Synced, micros};
use crate::breaker::{Ended, Standing, Terms};

/// A snapshot, and a replica, count for this long. Replicas repeat theirs every second.
const FRESH: u64 = 3_000_000;
/// How long it is known that a breaker was closed, or a policy released.
const KEPT: u64 = 60_000_000;

/// The fleet's state of its breakers.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    epoch: u64,
    breakers: BTreeMap<String, Entry>,
    forces: BTreeMap<String, Mark>,
    /// By breaker and replica.
    seen: HashMap<String, HashMap<String, Seen>>,
    /// When each replica has last reported.
    replicas: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
enum Entry {
    Open(Open),
    Closed { generation: u64, since: u64 },
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
    at: u64,
}

/// A policy that is forced open, or was released.
#[derive(Clone, Debug)]
enum Mark {
    Forced { ends: u64, length: u64, by: String },
    Released { since: u64 },
}

// === impl Board ===

impl Board {
    pub(super) fn sync(&mut self, now: u64, report: &Report) -> Synced {
        let Report { replica, is_leaving, epoch, snapshots } = report;
        if *is_leaving {
            self.replicas.remove(&**replica);
        } else {
            self.replicas.insert(replica.to_string(), now);
        }
        let replicas = self.replicas.values().filter(|at| is_fresh(now, **at)).count();
        for snapshot in snapshots {
            self.report(now, replica, snapshot);
        }
        Synced {
            epoch: self.epoch,
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
            news: (self.epoch != *epoch).then(|| self.news(now)),
        }
    }

    fn report(&mut self, now: u64, replica: &str, snapshot: &Snapshot) {
        let Snapshot { breaker, generation, calls, failures, terms, spread } = snapshot;
        let breaker = &**breaker;
        if *calls == 0 {
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
        let seen = Seen { generation: *generation, calls: *calls, failures: *failures, at: now };
        let windows = self.seen.entry(breaker.to_owned()).or_default();
        windows.insert(replica.to_owned(), seen);
        let is_counted = |seen: &&Seen| is_fresh(now, seen.at) && seen.generation >= known;
        if *failures > 0 && is_sick(windows.values().filter(is_counted), terms) {
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
                        let closed = Entry::Closed { generation, since: now };
                        self.breakers.insert(breaker.to_owned(), closed);
                        self.bump(now);
                    }
                }
            }
        }
        self.standing(now, breaker)
    }

    pub(super) fn force(&mut self, now: u64, force: &Force) {
        let Force { policy, time, by } = force;
        let length = micros(*time);
        let mark = if length == 0 {
            Mark::Released { since: now }
        } else {
            Mark::Forced { ends: now + length, length, by: by.clone() }
        };
        self.forces.insert(policy.to_string(), mark);
        self.bump(now);
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
        self.seen.remove(breaker);
        self.bump(now);
    }

    /// Returns the standing of a breaker. A break that a clock set back has lengthened is
    /// shortened.
    fn standing(&mut self, now: u64, breaker: &str) -> Option<Standing> {
        Some(match self.breakers.get_mut(breaker)? {
            Entry::Open(open) => {
                open.ends = open.ends.min(now + open.length);
                let left = Duration::from_micros(open.ends.saturating_sub(now));
                Standing::Open { generation: open.generation, left, reopenings: open.reopenings }
            }
            Entry::Closed { generation, .. } => Standing::Closed { generation: *generation },
        })
    }

    /// Everything that is known. Entries that have expired are removed.
    fn news(&mut self, now: u64) -> FleetState {
        // A time in the future is due to a clock that was set back.
        let is_kept = |since: &mut u64| {
            *since = (*since).min(now);
            now - *since < KEPT
        };
        self.breakers.retain(|_, entry| match entry {
            Entry::Open(_) => true,
            Entry::Closed { since, .. } => is_kept(since),
        });
        self.forces.retain(|_, mark| match mark {
            Mark::Forced { ends, .. } => *ends > now,
            Mark::Released { since } => is_kept(since),
        });
        let names: Vec<_> = self.breakers.keys().cloned().collect();
        let breakers = names.into_iter().filter_map(|name| {
            let standing = self.standing(now, &name)?;
            Some((name, standing))
        });
        let breakers = breakers.collect();
        let forces = self.forces.iter_mut().map(|(policy, mark)| {
            let forced = match mark {
                Mark::Forced { ends, length, by } => {
                    *ends = (*ends).min(now + *length);
                    Forced { left: Duration::from_micros(*ends - now), by: by.clone() }
                }
                Mark::Released { .. } => Forced { left: Duration::ZERO, by: String::new() },
            };
            (policy.clone(), forced)
        });
        FleetState { breakers, forces: forces.collect() }
    }

    fn bump(&mut self, now: u64) {
        self.epoch = next(self.epoch, now);
    }
}

/// Returns whether enough witnesses see that the backend fails.
fn is_sick<'a>(windows: impl Iterator<Item = &'a Seen>, terms: &Terms) -> bool {
    let exceeds = |failures: u64, calls: u64| failures as f64 >= terms.ratio * calls as f64;
    let (mut calls, mut failures, mut replicas, mut witnesses) = (0, 0, 0, 0);
    for seen in windows {
        calls += seen.calls;
        failures += seen.failures;
        replicas += 1;
        witnesses += u32::from(exceeds(seen.failures, seen.calls));
    }
    calls >= u64::from(terms.calls)
        && exceeds(failures, calls)
        && witnesses >= terms.witnesses.min(replicas)
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
