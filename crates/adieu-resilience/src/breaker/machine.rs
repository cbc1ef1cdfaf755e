//! Decides how long a breaker stays open, which calls probe the backend, and when it closes.
//!
//! # Invariants
//!
//! 1. Every state except closed ends with time. A lease that is never settled expires, so no caller
//!    can keep the breaker from admitting a probe.
//! 2. The generation rises with each transition. An outcome of another generation changes nothing.
//! 3. At most `probes` leases are valid at a time.
//! 4. A breaker that the fleet has opened closes only if the fleet closes it, or if a probe of this
//!    process succeeds while the store is away.
//! 5. The latest answer of the store counts, even with an older generation: a store that restarts
//!    or fails over may have lost earlier transitions.

use std::time::{Duration, Instant};

use super::ended::Ended;
use super::fleet::Standing;

/// How long a request to the store may be in flight before another call may send one.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// How long after a refusal of the store the next call may request to probe.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The figures of a breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// The first break.
    pub(crate) opens_for: Duration,
    /// The longest break.
    pub(crate) at_most: Duration,
    /// How many probes there can be at a time.
    pub(crate) probes: u32,
    /// How many probes in a row must succeed.
    pub(crate) closes_after: u32,
    /// How long a probe may take before the next call may probe in its place.
    pub(crate) lease: Duration,
}

/// The state of a breaker.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    figures: Figures,
    phase: Phase,
    generation: u32,
    /// How often the breaker has reopened since it was last closed.
    reopenings: u32,
    last_probe: u64,
    /// The last generation in which the breaker was closed: the window of that generation is what the
    /// breaker has seen.
    last_closed: u32,
    /// The last generation of the fleet's breaker; zero if the fleet has none.
    fleet_generation: u64,
    /// When this process received that generation.
    fleet_learnt: Option<Instant>,
    /// Whether a probe of this process has closed the breaker, although the fleet may have it open.
    is_closed_alone: bool,
    /// Whether it is not closed because of what this process has seen itself.
    is_open_by_itself: bool,
}

/// The party that may let a call through as a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prober {
    None,
    Process,
    /// If the fleet has opened the breaker, the store. Otherwise this process.
    Fleet,
}

#[derive(Clone, Debug)]
enum Phase {
    Closed,
    Open {
        until: Instant,
    },
    HalfOpen {
        leases: Vec<Lease>,
        succeeded: u32,
    },
    /// The fleet has opened the breaker. After the break, the store grants its probes. No call sends a
    /// request to the store before `ask_after`.
    FleetOpen {
        until: Instant,
        ask_after: Instant,
        /// Until when a probe is known to run, if nobody returns it.
        probed_until: Option<Instant>,
    },
}

/// A probe that has been admitted and not settled.
#[derive(Clone, Copy, Debug)]
struct Lease {
    probe: Probe,
    until: Instant,
}

/// Identifies a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe(u64);

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    Probe(Probe),
    /// The call must request the probe from the store.
    AskFleet,
    Refused {
        retry_after: Duration,
    },
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened {
        for_: Duration,
        reopenings: u32,
    },
    /// The fleet has opened the breaker.
    FleetOpened {
        for_: Duration,
        reopenings: u32,
    },
    /// The fleet has opened a breaker that this process had opened before.
    FleetFollowed,
    HalfOpened,
    Closed,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn new(figures: Figures) -> Self {
        Self {
            figures,
            phase: Phase::Closed,
            generation: 0,
            reopenings: 0,
            last_probe: 0,
            last_closed: 0,
            fleet_generation: 0,
            fleet_learnt: None,
            is_closed_alone: false,
            is_open_by_itself: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Returns whether this process has opened the breaker by its own calls, and the fleet has not.
    pub(crate) fn is_open_by_itself(&self) -> bool {
        self.is_open_by_itself
    }

    pub(crate) fn is_open_in_fleet(&self) -> bool {
        matches!(self.phase, Phase::FleetOpen { .. })
    }

    /// Returns the remaining time of the break; `None` if it is half-open.
    pub(crate) fn break_left(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::FleetOpen { until, probed_until: Some(probed_until), .. }
                if until <= now && now < probed_until =>
            {
                None
            }
            Phase::Open { until } | Phase::FleetOpen { until, .. } => {
                Some(until.saturating_duration_since(now))
            }
            Phase::Closed | Phase::HalfOpen { .. } => None,
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the generation in which the breaker is closed, or was last.
    pub(crate) fn last_closed(&self) -> u32 {
        if self.is_closed() { self.generation } else { self.last_closed }
    }

    pub(crate) fn fleet_generation(&self) -> u64 {
        self.fleet_generation
    }

    /// Returns the generation of the fleet's breaker that a probe of this process has closed for
    /// this process alone. The store has not received it yet.
    pub(crate) fn closed_alone(&self) -> Option<u64> {
        let is_known = self.fleet_generation > 0;
        (is_known && self.is_closed_alone && self.is_closed()).then_some(self.fleet_generation)
    }

    /// Records that the store has received that the fleet's breaker of this generation can close.
    pub(crate) fn recovery_reported(&mut self, fleet_generation: u64) {
        if self.fleet_generation == fleet_generation {
            self.is_closed_alone = false;
        }
    }

    /// Decides about a call. It is refused if it would be a probe and `prober` is `None`.
    pub(crate) fn ask(&mut self, now: Instant, prober: Prober) -> (Answer, Option<Change>) {
        let may_probe = prober != Prober::None;
        let mut change = None;
        match &mut self.phase {
            Phase::Closed => return (Answer::Admitted, None),
            Phase::Open { until } | Phase::FleetOpen { until, .. } if now < *until => {
                return (Answer::Refused { retry_after: *until - now }, None);
            }
            Phase::FleetOpen { ask_after, .. } if prober == Prober::Fleet => {
                if now < *ask_after {
                    return (Answer::Refused { retry_after: *ask_after - now }, None);
                }
                *ask_after = now + IN_FLIGHT;
                return (Answer::AskFleet, None);
            }
            // Open => HalfOpen, by the first call that may probe.
            Phase::Open { .. } | Phase::FleetOpen { .. } if may_probe => {
                self.enter(Phase::HalfOpen { leases: Vec::new(), succeeded: 0 });
                change = Some(Change::HalfOpened);
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } | Phase::FleetOpen { .. } => {}
        }
        let Figures { probes, lease, opens_for, .. } = self.figures;
        let mut retry_after = opens_for;
        if let Phase::HalfOpen { leases, .. } = &mut self.phase {
            leases.retain(|lease| now < lease.until);
            if may_probe && leases.len() < probes as usize {
                self.last_probe += 1;
                let probe = Probe(self.last_probe);
                leases.push(Lease { probe, until: now + lease });
                return (Answer::Probe(probe), change);
            }
            let soonest = leases.iter().map(|lease| lease.until - now).min();
            retry_after = retry_after.min(soonest.unwrap_or(opens_for));
        }
        (Answer::Refused { retry_after }, change)
    }

    /// Opens the breaker, because the window of this generation has met the limit. `spread` is from zero
    /// to one.
    pub(crate) fn trip(&mut self, now: Instant, generation: u32, spread: f64) -> Option<Change> {
        // Closed => Open
        if !self.is_closed() || generation != self.generation {
            return None;
        }
        Some(self.open(now, spread))
    }

    /// A probe of this generation has ended. `spread` is from zero to one.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        generation: u32,
        probe: Probe,
        ended: Ended,
        spread: f64,
    ) -> Option<Change> {
        if generation != self.generation {
            return None;
        }
        let Phase::HalfOpen { leases, succeeded } = &mut self.phase else { return None };
        let held = leases.iter().position(|lease| lease.probe == probe && now < lease.until)?;
        leases.swap_remove(held);
        match ended {
            Ended::Neutral => None,
            // HalfOpen => Open
            Ended::Failed => {
                self.reopenings = self.reopenings.saturating_add(1);
                Some(self.open(now, spread))
            }
            Ended::Succeeded => {
                *succeeded += 1;
                if *succeeded < self.figures.closes_after {
                    return None;
                }
                // HalfOpen => Closed
                Some(self.close_alone())
            }
        }
    }

    /// Adopts the state of the fleet's breaker, from the answer to a request that was sent at `sent`.
    pub(crate) fn adopt(
        &mut self,
        now: Instant,
        sent: Instant,
        standing: Option<Standing>,
    ) -> Option<Change> {
        let generation = standing.map_or(0, |standing| standing.generation());
        if generation < self.fleet_generation {
            // An answer that was overtaken by a newer one changes nothing.
            if self.fleet_learnt.is_some_and(|learnt| sent <= learnt) {
                return None;
            }
            self.forget_fleet();
        }
        if generation > self.fleet_generation {
            self.fleet_learnt = Some(now);
        }
        match standing {
            Some(Standing::Open { generation, left, reopenings }) => {
                let until = sent + left;
                if generation > self.fleet_generation {
                    // Closed | Open | HalfOpen | FleetOpen => FleetOpen
                    self.fleet_generation = generation;
                    self.reopenings = reopenings;
                    self.is_open_by_itself = false;
                    let was_open =
                        matches!(self.phase, Phase::Open { .. } | Phase::HalfOpen { .. });
                    self.enter(Phase::FleetOpen { until, ask_after: until, probed_until: None });
                    return Some(match was_open {
                        true => Change::FleetFollowed,
                        false => Change::FleetOpened { for_: left, reopenings },
                    });
                }
                if let Phase::FleetOpen { until: known, .. } = &mut self.phase
                    && generation == self.fleet_generation
                {
                    *known = until;
                }
                None
            }
            Some(Standing::Closed { generation }) => {
                let is_new = generation > self.fleet_generation;
                self.fleet_generation = self.fleet_generation.max(generation);
                // FleetOpen => Closed. A breaker that this process has opened stays open.
                (is_new && matches!(self.phase, Phase::FleetOpen { .. })).then(|| self.close())
            }
            None => None,
        }
    }

    /// The store has lost the last generation of the fleet's breaker.
    fn forget_fleet(&mut self) {
        self.fleet_generation = 0;
        // FleetOpen => Open: a store that has lost its data closes nothing.
        if let Phase::FleetOpen { until, .. } = self.phase {
            self.phase = Phase::Open { until };
        }
    }

    /// Records that the store has granted a probe, which has a lease from now on.
    pub(crate) fn fleet_granted(&mut self, now: Instant) {
        let until = now + self.figures.lease;
        self.ask_fleet_after(until, Some(until));
    }

    /// Records that the store has refused a probe, because others are running for this long.
    pub(crate) fn fleet_busy(&mut self, now: Instant, wait: Duration) {
        self.ask_fleet_after(now + wait.min(ASK_AGAIN), Some(now + wait));
    }

    /// A probe of the fleet was returned, or the request for it was not answered.
    pub(crate) fn fleet_idle(&mut self, now: Instant) {
        self.ask_fleet_after(now, None);
    }

    fn ask_fleet_after(&mut self, at: Instant, probing: Option<Instant>) {
        if let Phase::FleetOpen { ask_after, probed_until, .. } = &mut self.phase {
            (*ask_after, *probed_until) = (at, probing);
        }
    }

    /// A probe that the store had granted has ended, and the store cannot be notified.
    pub(crate) fn settle_alone(
        &mut self,
        now: Instant,
        fleet_generation: u64,
        ended: Ended,
        spread: f64,
    ) -> Option<Change> {
        if !matches!(self.phase, Phase::FleetOpen { .. })
            || fleet_generation != self.fleet_generation
        {
            return None;
        }
        match ended {
            Ended::Neutral => {
                self.fleet_idle(now);
                None
            }
            // FleetOpen => Open
            Ended::Failed => {
                self.reopenings = self.reopenings.saturating_add(1);
                Some(self.open(now, spread))
            }
            // FleetOpen => HalfOpen: this process makes the other probes.
            Ended::Succeeded if self.figures.closes_after > 1 => {
                self.enter(Phase::HalfOpen { leases: Vec::new(), succeeded: 1 });
                Some(Change::HalfOpened)
            }
            // FleetOpen => Closed
            Ended::Succeeded => Some(self.close_alone()),
        }
    }

    fn close_alone(&mut self) -> Change {
        let change = self.close();
        self.is_closed_alone = true;
        change
    }

    fn close(&mut self) -> Change {
        self.is_closed_alone = false;
        self.is_open_by_itself = false;
        self.reopenings = 0;
        self.enter(Phase::Closed);
        Change::Closed
    }

    fn open(&mut self, now: Instant, spread: f64) -> Change {
        let Figures { opens_for, at_most, .. } = self.figures;
        let doubled = opens_for.saturating_mul(1 << self.reopenings.min(31)).min(at_most);
        // Replicas that have opened at the same time do not probe at the same time.
        let for_ = doubled.mul_f64(0.9 + 0.2 * spread);
        self.enter(Phase::Open { until: now + for_ });
        self.is_open_by_itself = true;
        Change::Opened { for_, reopenings: self.reopenings }
    }

    fn enter(&mut self, phase: Phase) {
        self.last_closed = self.last_closed();
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
