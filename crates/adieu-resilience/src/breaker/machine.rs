//! Decides how long a breaker stays open, which calls probe the backend, and when it closes.
//!
//! # Invariants
//!
//! 1. Every state except closed ends with time. A lease that is never settled expires, so no caller
//!    can keep the breaker from admitting a probe.
//! 2. The generation rises with each transition. An outcome of another generation changes nothing.
//! 3. At most `probes` leases are valid at a time.

use std::time::{Duration, Instant};

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
}

#[derive(Clone, Debug)]
enum Phase {
    Closed,
    Open { until: Instant },
    HalfOpen { leases: Vec<Lease>, succeeded: u32 },
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

/// What a call is told that wants to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    Probe(Probe),
    Refused { retry_after: Duration },
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened { for_: Duration, reopenings: u32 },
    HalfOpened,
    Closed,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded,
    Failed,
    /// Nothing was learnt.
    Neutral,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn new(figures: Figures) -> Self {
        Self { figures, phase: Phase::Closed, generation: 0, reopenings: 0, last_probe: 0 }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// What is left of the break; `None` if it is half-open.
    pub(crate) fn break_left(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Open { until } => Some(until.saturating_duration_since(now)),
            Phase::Closed | Phase::HalfOpen { .. } => None,
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// A call wants to pass. Without `may_probe` it is refused where it would have to probe.
    pub(crate) fn ask(&mut self, now: Instant, may_probe: bool) -> (Answer, Option<Change>) {
        let mut change = None;
        match self.phase {
            Phase::Closed => return (Answer::Admitted, None),
            Phase::Open { until } if now < until => {
                return (Answer::Refused { retry_after: until - now }, None);
            }
            // Open => HalfOpen, by the first call that may probe.
            Phase::Open { .. } if may_probe => {
                self.enter(Phase::HalfOpen { leases: Vec::new(), succeeded: 0 });
                change = Some(Change::HalfOpened);
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => {}
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

    /// The window of this generation has met the limit. `spread` is from zero to one.
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
                self.reopenings = 0;
                self.enter(Phase::Closed);
                Some(Change::Closed)
            }
        }
    }

    fn open(&mut self, now: Instant, spread: f64) -> Change {
        let Figures { opens_for, at_most, .. } = self.figures;
        let doubled = opens_for.saturating_mul(1 << self.reopenings.min(31)).min(at_most);
        // Replicas that have opened at the same time do not probe at the same time.
        let for_ = doubled.mul_f64(0.9 + 0.2 * spread);
        self.enter(Phase::Open { until: now + for_ });
        Change::Opened { for_, reopenings: self.reopenings }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
