//! When a breaker opens, probes and closes.

use proptest::prelude::*;

use super::*;

const FIGURES: Figures = Figures {
    opens_for: Duration::from_secs(5),
    at_most: Duration::from_secs(60),
    probes: 1,
    closes_after: 1,
    lease: Duration::from_secs(3),
};

fn start() -> Instant {
    crate::time::now()
}

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// Returns a machine that has just opened, for a break without random variation.
fn opened(figures: Figures, now: Instant) -> Machine {
    let mut machine = Machine::new(figures);
    assert!(machine.trip(now, 0, 0.5).is_some());
    machine
}

fn probe_of(machine: &mut Machine, now: Instant) -> Probe {
    match machine.ask(now, Prober::Process).0 {
        Answer::Probe(probe) => probe,
        other @ (Answer::Admitted | Answer::AskFleet | Answer::Refused { .. }) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn s706_an_open_breaker_refuses_with_the_remaining_break() {
    let now = start();
    let mut machine = opened(FIGURES, now);
    for (passed, left) in [(0.0, 5.0), (1.5, 3.5), (4.999, 0.001)] {
        let (answer, change) = machine.ask(now + secs(passed), Prober::Process);
        assert_eq!(answer, Answer::Refused { retry_after: secs(left) });
        assert_eq!(change, None);
    }
    assert!(matches!(machine.ask(now + secs(5.0), Prober::Process), (Answer::Probe(_), Some(_))));
}

#[test]
fn s707_breaks_double_up_to_the_longest_and_begin_anew_after_closing() {
    let mut now = start();
    let mut machine = opened(FIGURES, now);
    let mut breaks = Vec::new();
    for _ in 0..6 {
        now += secs(70.0);
        let probe = probe_of(&mut machine, now);
        let change = machine.settle(now, machine.generation(), probe, Ended::Failed, 0.5);
        let Some(Change::Opened { for_, .. }) = change else { panic!("{change:?}") };
        breaks.push(for_.as_secs());
    }
    assert_eq!(breaks, [10, 20, 40, 60, 60, 60]);
    now += secs(70.0);
    let probe = probe_of(&mut machine, now);
    let change = machine.settle(now, machine.generation(), probe, Ended::Succeeded, 0.5);
    assert_eq!(change, Some(Change::Closed));
    let change = machine.trip(now, machine.generation(), 0.5);
    assert_eq!(change, Some(Change::Opened { for_: secs(5.0), reopenings: 0 }));
}

#[test]
fn s707_a_break_is_spread_by_a_tenth() {
    let for_ = |spread| match Machine::new(FIGURES).trip(start(), 0, spread) {
        Some(Change::Opened { for_, .. }) => for_.as_millis(),
        other => panic!("{other:?}"),
    };
    assert_eq!([0.0, 0.5, 1.0].map(for_), [4_500, 5_000, 5_500]);
}

#[test]
fn s708_a_probe_comes_back_when_it_is_neutral_and_when_its_lease_expires() {
    let now = start() + secs(60.0);
    let mut machine = opened(FIGURES, now - secs(60.0));
    let neutral = probe_of(&mut machine, now);
    assert!(matches!(machine.ask(now, Prober::Process).0, Answer::Refused { .. }));
    let generation = machine.generation();
    assert_eq!(machine.settle(now, generation, neutral, Ended::Neutral, 0.5), None);
    let hung = probe_of(&mut machine, now);
    let later = now + secs(2.999);
    let refused = machine.ask(later, Prober::Process).0;
    assert_eq!(refused, Answer::Refused { retry_after: secs(0.001) });
    probe_of(&mut machine, now + secs(3.0));
    // The lease has expired, so its outcome is ignored, even in the same generation.
    let late = machine.settle(now + secs(3.0), generation, hung, Ended::Failed, 0.5);
    assert_eq!((late, machine.generation()), (None, generation));
}

#[test]
fn s709_as_many_probes_must_succeed_as_declared_and_one_that_fails_reopens() {
    let now = start() + secs(60.0);
    let mut machine = opened(Figures { closes_after: 3, probes: 2, ..FIGURES }, now - secs(60.0));
    for ended in [None, None, Some(Change::Closed)] {
        let probe = probe_of(&mut machine, now);
        let generation = machine.generation();
        assert_eq!(machine.settle(now, generation, probe, Ended::Succeeded, 0.5), ended);
    }
    let mut machine = opened(Figures { probes: 2, ..FIGURES }, now - secs(60.0));
    let (one, other) = (probe_of(&mut machine, now), probe_of(&mut machine, now));
    let generation = machine.generation();
    assert!(machine.settle(now, generation, one, Ended::Failed, 0.5).is_some());
    assert_eq!(machine.settle(now, generation, other, Ended::Succeeded, 0.5), None);
    assert!(matches!(machine.ask(now, Prober::Process).0, Answer::Refused { .. }));
}

#[test]
fn s710_an_outcome_of_another_generation_changes_nothing() {
    let now = start();
    let mut machine = opened(FIGURES, now);
    assert_eq!(machine.trip(now, 0, 0.5), None, "a late failure of before does not lengthen it");
    let later = now + secs(6.0);
    let probe = probe_of(&mut machine, later);
    let old = machine.generation();
    assert!(machine.settle(later, old, probe, Ended::Failed, 0.5).is_some());
    assert_eq!(machine.settle(later, old, probe, Ended::Succeeded, 0.5), None);
    assert!(!machine.is_closed());
}

#[test]
fn s711_a_process_that_must_not_probe_is_refused_and_leaves_the_probe_to_others() {
    let now = start();
    let mut machine = opened(FIGURES, now);
    let later = now + secs(6.0);
    assert!(matches!(machine.ask(later, Prober::None), (Answer::Refused { .. }, None)));
    probe_of(&mut machine, later);
}

/// An action of a caller; actions come in any order. A probe without a `Settle` is dropped.
#[derive(Clone, Debug)]
enum Act {
    Wait(u32),
    Ask,
    Trip {
        stale: bool,
    },
    Settle {
        which: usize,
        ended: Ended,
        stale: bool,
    },
    /// A call that requests a probe from the store.
    AskFleet,
    /// The store answers a request to probe: granted, busy or not at all.
    Probed(u8),
    /// A probe that the store had granted ends without the store.
    SettleAlone(Ended),
    /// The store reports an open breaker, of a later generation or of the same.
    FleetOpens {
        left: u32,
        is_new: bool,
    },
    FleetCloses,
    StoreForgets,
    /// The store has returned to an older state.
    StoreIsRestored(Option<usize>),
}

/// The states of the fleet's breaker so far: whether it was open. The generation is the position.
struct History(Vec<bool>);

impl History {
    fn generation(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// The answer of the store if it returns to one of these states.
    fn restored(&self, which: Option<usize>) -> Option<Standing> {
        let which = which? % self.0.len();
        let generation = which as u64;
        Some(match self.0[which] {
            true => Standing::Open { generation, left: Duration::ZERO, reopenings: 0 },
            false => Standing::Closed { generation },
        })
    }
}

fn act() -> impl Strategy<Value = Act> {
    let ended = prop_oneof![Just(Ended::Succeeded), Just(Ended::Failed), Just(Ended::Neutral)];
    let alone = prop_oneof![Just(Ended::Succeeded), Just(Ended::Failed), Just(Ended::Neutral)];
    prop_oneof![
        Just(Act::AskFleet),
        (0u8..3).prop_map(Act::Probed),
        alone.prop_map(Act::SettleAlone),
        (0u32..66_000, any::<bool>()).prop_map(|(left, is_new)| Act::FleetOpens { left, is_new }),
        Just(Act::FleetCloses),
        Just(Act::StoreForgets),
        prop::option::of(0usize..50).prop_map(Act::StoreIsRestored),
        (0u32..8_000).prop_map(Act::Wait),
        Just(Act::Ask),
        Just(Act::Ask),
        any::<bool>().prop_map(|stale| Act::Trip { stale }),
        (0usize..4, ended, any::<bool>()).prop_map(|(which, ended, stale)| Act::Settle {
            which,
            ended,
            stale
        }),
    ]
}

proptest! {
    #[test]
    fn s708_whatever_callers_do_a_call_is_let_through_after_a_lease_and_a_break(
        acts in prop::collection::vec(act(), 0..120),
        probes in 1u32..4,
        closes_after in 1u32..4,
        spread in 0.0..=1.0,
        last in prop::option::of(0usize..50),
    ) {
        let figures = Figures { probes, closes_after, ..FIGURES };
        let mut machine = Machine::new(figures);
        let mut now = start();
        let mut held: Vec<(Probe, u32, Instant)> = Vec::new();
        let mut fleet = History(vec![false]);
        for act in acts {
            let before = machine.generation();
            let change = match act {
                Act::Wait(millis) => { now += Duration::from_millis(millis.into()); None }
                Act::Ask => {
                    let (answer, change) = machine.ask(now, Prober::Process);
                    if let Answer::Probe(probe) = answer {
                        held.push((probe, machine.generation(), now + figures.lease));
                    }
                    change
                }
                Act::Trip { stale } => {
                    machine.trip(now, before.wrapping_sub(u32::from(stale)), spread)
                }
                Act::Settle { which, ended, stale } if which < held.len() => {
                    let (probe, generation, _) = held[which];
                    let generation = generation.wrapping_sub(u32::from(stale));
                    if !stale { held.remove(which); }
                    machine.settle(now, generation, probe, ended, spread)
                }
                Act::Settle { .. } => None,
                Act::AskFleet => {
                    let (answer, change) = machine.ask(now, Prober::Fleet);
                    if let Answer::Probe(probe) = answer {
                        held.push((probe, machine.generation(), now + figures.lease));
                    }
                    change
                }
                Act::Probed(0) => { machine.fleet_granted(now); None }
                Act::Probed(1) => { machine.fleet_busy(now, figures.lease); None }
                Act::Probed(_) => { machine.fleet_idle(now); None }
                Act::SettleAlone(ended) => {
                    machine.settle_alone(now, fleet.generation(), ended, spread)
                }
                Act::FleetOpens { left, is_new } => {
                    if is_new || fleet.0.last() == Some(&false) {
                        fleet.0.push(true);
                    }
                    let left = Duration::from_millis(left.into());
                    let generation = fleet.generation();
                    let open = Standing::Open { generation, left, reopenings: 2 };
                    machine.adopt(now, now, Some(open))
                }
                Act::FleetCloses => {
                    fleet.0.push(false);
                    machine.adopt(now, now, Some(Standing::Closed { generation: fleet.generation() }))
                }
                Act::StoreForgets => machine.adopt(now, now, None),
                Act::StoreIsRestored(last) => machine.adopt(now, now, fleet.restored(last)),
            };
            let rose = machine.generation().wrapping_sub(before);
            prop_assert_eq!(rose, u32::from(change.is_some()), "one generation per transition");
            let current = machine.generation();
            let valid = |(_, of, until): &&(Probe, u32, Instant)| *of == current && now < *until;
            prop_assert!(held.iter().filter(valid).count() <= probes as usize);
        }
        now += figures.lease + figures.at_most.mul_f64(1.1);
        let (answer, _) = machine.clone().ask(now, Prober::Process);
        let is_through = matches!(answer, Answer::Admitted | Answer::Probe(_));
        prop_assert!(is_through, "{:?} in {:?}", answer, machine);
        // The store answers, and grants the probe if the breaker is open in its last state.
        let (answer, _) = machine.ask(now, Prober::Fleet);
        let last = fleet.restored(last);
        if answer == Answer::AskFleet && !matches!(last, Some(Standing::Open { .. })) {
            machine.adopt(now, now, last);
            let (answer, _) = machine.ask(now, Prober::Fleet);
            let is_through = matches!(answer, Answer::Admitted | Answer::Probe(_));
            prop_assert!(is_through, "{:?} in {:?} after {:?}", answer, machine, last);
        } else {
            prop_assert!(!matches!(answer, Answer::Refused { .. }), "{:?} in {:?}", answer, machine);
        }
    }
}

fn fleet_open(generation: u64, secs: u64) -> Option<Standing> {
    Some(Standing::Open { generation, left: Duration::from_secs(secs), reopenings: 0 })
}

#[test]
fn s914_a_breaker_that_the_fleet_has_opened_is_probed_by_permission_of_the_store() {
    let now = start();
    let mut machine = Machine::new(FIGURES);
    assert!(matches!(machine.adopt(now, now, fleet_open(7, 5)), Some(Change::FleetOpened { .. })));
    let refused = machine.ask(now + secs(2.0), Prober::Fleet).0;
    assert_eq!(refused, Answer::Refused { retry_after: secs(3.0) });
    let later = now + secs(5.0);
    assert_eq!(machine.ask(later, Prober::Fleet), (Answer::AskFleet, None));
    assert!(matches!(machine.ask(later, Prober::Fleet).0, Answer::Refused { .. }), "one at a time");
    machine.fleet_busy(later, secs(3.0));
    assert!(matches!(machine.ask(later + ASK_AGAIN, Prober::Fleet).0, Answer::AskFleet));
    machine.fleet_granted(later);
    let lease_ends = later + FIGURES.lease;
    assert!(matches!(
        machine.ask(lease_ends - secs(0.001), Prober::Fleet).0,
        Answer::Refused { .. }
    ));
    assert_eq!(machine.ask(lease_ends, Prober::Fleet).0, Answer::AskFleet);
    let closed = Some(Standing::Closed { generation: 8 });
    assert_eq!(machine.adopt(lease_ends, lease_ends, closed), Some(Change::Closed));
    assert_eq!(machine.adopt(lease_ends, lease_ends, fleet_open(7, 5)), None, "an old answer");
    assert!(machine.is_closed());
}

#[test]
fn s924_without_the_store_a_process_probes_alone_after_the_break_of_the_fleet() {
    let now = start();
    let mut machine = Machine::new(FIGURES);
    machine.adopt(now, now, fleet_open(7, 5));
    assert!(matches!(machine.ask(now + secs(4.9), Prober::Process).0, Answer::Refused { .. }));
    let later = now + secs(5.0);
    let probe = probe_of(&mut machine, later);
    let change = machine.settle(later, machine.generation(), probe, Ended::Succeeded, 0.5);
    assert_eq!(change, Some(Change::Closed));
    assert_eq!(machine.adopt(later, later, fleet_open(7, 5)), None, "the same opening as before");
    assert!(machine.is_closed());
}

#[test]
fn s924_a_store_that_has_lost_its_memory_closes_nothing() {
    let now = start();
    let mut machine = opened(FIGURES, now);
    assert_eq!(machine.adopt(now, now, None), None);
    assert!(matches!(machine.ask(now, Prober::Fleet).0, Answer::Refused { .. }));
    let mut machine = Machine::new(FIGURES);
    machine.adopt(now, now, fleet_open(7, 5));
    assert_eq!(machine.adopt(now, now, None), None);
    let refused = machine.ask(now + secs(1.0), Prober::Fleet).0;
    assert_eq!(refused, Answer::Refused { retry_after: secs(4.0) });
    // A breaker that this process has opened is not closed by the fleet either.
    let mut machine = opened(FIGURES, now);
    assert_eq!(machine.adopt(now, now, Some(Standing::Closed { generation: 9 })), None);
    assert!(!machine.is_closed());
}

#[test]
fn s1650_an_older_generation_counts_unless_a_newer_one_has_overtaken_it() {
    let (now, mut machine) = (start(), Machine::new(FIGURES));
    let closed = Some(Standing::Closed { generation: 6 });
    machine.adopt(now + secs(0.5), now, fleet_open(7, 5));
    // Sent before the process received generation 7.
    assert_eq!(machine.adopt(now + secs(0.6), now + secs(0.4), closed), None);
    assert_eq!(machine.ask(now + secs(6.0), Prober::Fleet).0, Answer::AskFleet);
    // Sent after that: the store has lost generation 7. That closes nothing, but the process probes alone.
    let later = now + secs(6.0);
    assert_eq!(machine.adopt(later, later, closed), None);
    assert_eq!((machine.fleet_generation(), machine.is_closed()), (6, false));
    let probe = probe_of(&mut machine, later);
    let change = machine.settle(later, machine.generation(), probe, Ended::Succeeded, 0.5);
    assert_eq!(change, Some(Change::Closed));
    // A store whose clock was set back opens the breaker with an older generation.
    let later = now + secs(8.0);
    assert!(machine.adopt(later, later, fleet_open(3, 5)).is_some());
    assert!(!machine.is_closed());
}

#[test]
fn s1659_without_the_store_as_many_probes_must_succeed_as_declared() {
    let now = start();
    let mut machine = Machine::new(Figures { closes_after: 3, ..FIGURES });
    machine.adopt(now, now, fleet_open(7, 5));
    let later = now + secs(6.0);
    assert_eq!(machine.ask(later, Prober::Fleet).0, Answer::AskFleet);
    machine.fleet_granted(later);
    // The store goes away before the probe ends.
    let change = machine.settle_alone(later, 7, Ended::Succeeded, 0.5);
    assert_eq!(change, Some(Change::HalfOpened));
    for ended in [None, Some(Change::Closed)] {
        let probe = probe_of(&mut machine, later);
        let generation = machine.generation();
        assert_eq!(machine.settle(later, generation, probe, Ended::Succeeded, 0.5), ended);
    }
    assert_eq!(machine.closed_alone(), Some(7));
}
