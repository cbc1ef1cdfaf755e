//! The faults in the world of one seed.

use std::time::Duration;

use super::{MILLI, SECOND, Time};
use crate::allocate::Limits;
use crate::settings::Settings;

pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) faults: Vec<(Time, Fault)>,
    pub(super) ends: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A process starts, under a name that an earlier one may have had.
    Start {
        name: usize,
        generation: u32,
        ready: bool,
    },
    Crash {
        at: usize,
    },
    Pause {
        at: usize,
        until: Time,
    },
    Cut {
        at: usize,
        is_cut: bool,
    },
    Hang {
        at: usize,
        hangs: bool,
    },
    Slow {
        at: usize,
        delay: Time,
    },
    /// Messages are lost, or arrive late, with these chances.
    Lossy {
        at: usize,
        loses: f64,
        late: f64,
    },
    Ready {
        at: usize,
        ready: bool,
    },
    Leave {
        at: usize,
    },
    Compact,
    /// The store ends a session early, as a faulty server may do.
    Revoke {
        at: usize,
    },
    OperatorLeave {
        name: usize,
    },
    OperatorOut {
        name: usize,
    },
    StopAll,
    /// An operator requests that the shard of an entity move to one of the nodes that can own it.
    Move {
        entity: u8,
        pick: usize,
    },
    /// The link from one process to another breaks.
    BreakLink {
        from: usize,
        to: usize,
    },
    /// Two processes cannot reach each other.
    CutLink {
        from: usize,
        to: usize,
        is_cut: bool,
    },
    /// The receiver ends a link, if it owes no answer.
    CloseLink {
        from: usize,
        to: usize,
    },
}

/// Faults begin before this, and end by it.
const CALM: Time = 70 * SECOND;
const ENDS: Time = 150 * SECOND;

// === impl Plan ===

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        // Not the generator of the world itself, so that both can change apart.
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_fa11);
        let revokes = rng.u8(0..4) == 0;
        let mut settings = settings();
        if revokes {
            // A store that ends sessions early needs a removal margin of a whole time to live.
            settings.removal_margin = settings.ttl;
        }
        let nodes = rng.usize(1..=4);
        let mut faults: Vec<(Time, Fault)> = Vec::new();
        for name in 0..nodes {
            let at = if rng.bool() { 0 } else { rng.u64(0..10 * SECOND) };
            faults.push((at, Fault::Start { name, generation: 0, ready: rng.u8(0..10) > 0 }));
        }
        faults.sort_by_key(|(at, _)| *at);
        if rng.u8(0..3) == 0 {
            // A bad network from the beginning: many commits arrive late, after others.
            let (loses, late) = (rng.f64() * 0.1, rng.f64() * 0.3);
            for at in 0..nodes {
                faults.push((11 * SECOND, Fault::Lossy { at, loses, late }));
                faults.push((CALM, Fault::Lossy { at, loses: 0.0, late: 0.0 }));
            }
        }
        let mut processes = nodes;
        let mut starts: Vec<(Time, Fault)> = Vec::new();
        for _ in 0..rng.usize(0..=7) {
            // Often at the same instant as another, or a moment later.
            let begins = match faults.last() {
                Some((last, _)) if (SECOND..CALM).contains(last) && rng.bool() => {
                    last + rng.u64(0..300 * MILLI)
                }
                _ => rng.u64(2 * SECOND..CALM - 20 * SECOND),
            };
            let begins = begins.min(CALM - 2 * SECOND);
            let lasts = match rng.u8(0..3) {
                0 => rng.u64(0..2 * SECOND),
                1 => rng.u64(0..12 * SECOND),
                _ => rng.u64(0..40 * SECOND),
            };
            let over = (begins + lasts).min(CALM);
            let at = rng.usize(0..processes);
            let name = rng.usize(0..nodes);
            let mut put = |time, fault| faults.push((time, fault));
            match rng.u8(0..24) {
                0..=2 => put(begins, Fault::Crash { at }),
                3..=5 => put(begins, Fault::Pause { at, until: over }),
                6..=7 => {
                    put(begins, Fault::Cut { at, is_cut: true });
                    put(over, Fault::Cut { at, is_cut: false });
                }
                8..=9 => {
                    put(begins, Fault::Hang { at, hangs: true });
                    put(over, Fault::Hang { at, hangs: false });
                }
                10 => {
                    put(begins, Fault::Slow { at, delay: rng.u64(0..2 * SECOND) });
                    put(over, Fault::Slow { at, delay: 0 });
                }
                11..=13 => {
                    let (loses, late) = (rng.f64() * 0.3, rng.f64() * 0.5);
                    put(begins, Fault::Lossy { at, loses, late });
                    put(over, Fault::Lossy { at, loses: 0.0, late: 0.0 });
                }
                14 => {
                    put(begins, Fault::Ready { at, ready: false });
                    put(over, Fault::Ready { at, ready: true });
                }
                15..=18 => put(begins, Fault::Leave { at }),
                19 => put(begins, Fault::Compact),
                20 if revokes => put(begins, Fault::Revoke { at }),
                20 => put(begins, Fault::OperatorLeave { name }),
                21 => put(begins, Fault::OperatorOut { name }),
                22 if rng.u8(0..4) == 0 => put(begins, Fault::StopAll),
                _ => {
                    let generation = 1 + u32::try_from(starts.len()).unwrap_or(0);
                    starts.push((begins, Fault::Start { name, generation, ready: true }));
                    processes += 1;
                }
            }
        }
        // Processes are numbered in the order in which they start.
        starts.sort_by_key(|(at, _)| *at);
        let mut order = 0;
        for (at, fault) in &mut starts {
            order += 1;
            *at = (*at).max(11 * SECOND) + order;
            let Fault::Start { generation, .. } = fault else { continue };
            *generation = u32::try_from(order).unwrap_or(0);
        }
        faults.extend(starts);
        Self { settings, faults, ends: ENDS }
    }
}

/// Returns the usual settings, with less patience for what would take minutes.
pub(super) fn settings() -> Settings {
    Settings {
        calm: Duration::from_secs(8),
        rest: Duration::from_secs(5),
        remember_gone: Duration::from_secs(20),
        limits: Limits { moves: 2, percent: 50 },
        ..Settings::for_ttl(Duration::from_secs(10))
    }
}
