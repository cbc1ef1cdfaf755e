//! The messages and the faults of links in the world of one seed.

use std::time::Duration;

use super::plan::{Fault, Plan};
use super::traffic::Signal;
use super::{Event, MILLI, SECOND, Time, World};
use crate::route::Kind;

/// Messages are sent until this, and have ended when the world ends.
const LAST: Time = 100 * SECOND;

/// The events in the world of one seed with messages.
pub(super) struct Script {
    pub(super) plan: Plan,
    /// Whether nothing fails: processes start and leave, shards move, and every message must run.
    pub(super) is_strict: bool,
    slowest: Time,
    handles: Time,
    sends: Vec<(Time, Signal)>,
}

// === impl Script ===

impl Script {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x3e_55a6e5);
        let is_strict = rng.u8(0..3) == 0;
        let mut plan = Plan::of(seed);
        if is_strict {
            // The first process stays, so that every shard has an owner.
            plan.faults.retain(|(_, fault)| matches!(fault, Fault::Start { .. }));
            for (_, fault) in &mut plan.faults {
                if let Fault::Start { ready, .. } = fault {
                    *ready = true;
                }
            }
            for _ in 0..rng.u8(0..4) {
                let at = rng.u64(12 * SECOND..70 * SECOND);
                plan.faults.push((at, Fault::Leave { at: rng.usize(1..5) }));
            }
        }
        for _ in 0..rng.u8(4..16) {
            let (at, shard, pick) = (rng.u64(6 * SECOND..90 * SECOND), rng.u8(0..7), rng.usize(..));
            plan.faults.push((at, Fault::Move { entity: shard, pick }));
        }
        for _ in 0..rng.u8(0..6) {
            let at = rng.u64(6 * SECOND..90 * SECOND);
            let (from, to) = (rng.usize(0..5), rng.usize(0..5));
            plan.faults.push((at, Fault::CloseLink { from, to }));
            if !is_strict && rng.bool() {
                let (at, from, to) = (rng.u64(6 * SECOND..90 * SECOND), to, from);
                plan.faults.push((at, Fault::BreakLink { from, to }));
            }
            if !is_strict && rng.u8(0..3) == 0 {
                let over = at + rng.u64(0..10 * SECOND);
                plan.faults.push((at, Fault::CutLink { from, to, is_cut: true }));
                plan.faults.push((over, Fault::CutLink { from, to, is_cut: false }));
            }
        }
        let slowest = [2 * MILLI, 30 * MILLI, 200 * MILLI][rng.usize(0..3)];
        let handles = match rng.u8(0..8) {
            0 if !is_strict => 12 * SECOND,
            1 | 2 if !is_strict => 2 * SECOND,
            _ => 40 * MILLI,
        };
        let mut script = Self { plan, is_strict, slowest, handles, sends: Vec::new() };
        script.send(&mut rng);
        script
    }

    /// Several senders send several messages each to one entity, mostly when something happens.
    fn send(&mut self, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u8(10..25) {
            let events: Vec<Time> = self.plan.faults.iter().map(|(at, _)| *at).collect();
            let near = events[rng.usize(0..events.len())].clamp(6 * SECOND, LAST);
            let mut at = match rng.u8(0..4) {
                0 => rng.u64(6 * SECOND..LAST),
                1 => near.saturating_sub(rng.u64(0..100 * MILLI)),
                _ => near + rng.u64(0..300 * MILLI),
            };
            // Not every process hosts the last ones.
            let entities = if self.is_strict { 5 } else { 7 };
            let (sender, entity) = (rng.usize(0..6), rng.u8(0..entities));
            let pace = rng.u64(0..40 * MILLI);
            for _ in 0..rng.u8(1..8) {
                let kind = match rng.u8(0..6) {
                    0 => Kind::Tell,
                    1 if !self.is_strict => Kind::IdempotentAsk,
                    _ => Kind::Ask,
                };
                let lasts = match rng.u8(0..3) {
                    _ if self.is_strict => 30_000,
                    0 => rng.u64(50..1_000),
                    _ => rng.u64(1_000..15_000),
                };
                let nests = if rng.u8(0..3) == 0 { rng.u8(1..3) } else { 0 };
                let lasts = Duration::from_millis(lasts);
                self.sends.push((at, Signal::Send { at: sender, entity, kind, lasts, nests }));
                at += rng.u64(0..=pace);
            }
        }
    }

    /// Puts everything into a world.
    pub(super) fn begin(self, world: &mut World) {
        world.traffic.is_on = true;
        world.traffic.network.slowest = self.slowest;
        world.traffic.handles = self.handles;
        world.traffic.ledger.is_strict = self.is_strict;
        for (at, fault) in self.plan.faults {
            world.schedule(at, Event::Fault(fault));
        }
        for (at, send) in self.sends {
            world.schedule(at, Event::Traffic(send));
        }
    }
}
