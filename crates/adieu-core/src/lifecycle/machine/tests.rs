//! Property tests with random graphs, starts and times.
//!
//! A simulated driver carries out the effects, on a clock that jumps from event to event.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_millis(200);

/// How a start behaves when it runs, is cancelled, and is aborted.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Starts(u64),
    HasNothingToStop(u64),
    Fails(u64),
    /// Comes up when it is cancelled.
    UpWhenCancelled,
    /// Ends when it is aborted.
    EndsWhenAborted,
    /// Cannot be ended. If true, it comes up after start-up is over.
    Stuck(bool),
}

#[derive(Clone, Debug)]
struct Scenario {
    /// The dependencies of each step, among the steps before it.
    edges: Vec<Vec<usize>>,
    kinds: Vec<(Kind, u64)>,
    interrupt: Option<u64>,
    gone: Option<u64>,
    one_at_a_time: bool,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        12 => (0..3_000u64).prop_map(Kind::Starts),
        3 => (0..3_000u64).prop_map(Kind::HasNothingToStop),
        1 => (0..3_000u64).prop_map(Kind::Fails),
        1 => Just(Kind::UpWhenCancelled),
        1 => Just(Kind::EndsWhenAborted),
        1 => any::<bool>().prop_map(Kind::Stuck),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let step = (prop::collection::vec(0..100usize, 0..3), kind(), 1..4_000u64);
    (
        prop::collection::vec(step, 0..10),
        prop::option::weighted(0.3, 0..8_000u64),
        prop::option::weighted(0.1, 0..8_000u64),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(steps, interrupt, gone, one_at_a_time)| {
            let earlier = |(at, on): (usize, &Vec<usize>)| match at {
                0 => Vec::new(),
                at => on.iter().map(|on| on % at).collect(),
            };
            let edges = steps.iter().map(|(on, ..)| on).enumerate().map(earlier).collect();
            let kinds = steps.iter().map(|(_, kind, timeout)| (*kind, *timeout)).collect();
            Scenario { edges, kinds, interrupt, gone, one_at_a_time }
        })
}

impl Scenario {
    fn waves(&self) -> Vec<Vec<usize>> {
        let mut wave_of: Vec<usize> = Vec::new();
        for (at, on) in self.edges.iter().enumerate() {
            let earliest = on.iter().map(|&on| wave_of[on] + 1).max().unwrap_or(0);
            wave_of.push(if self.one_at_a_time { at } else { earliest });
        }
        let count = wave_of.iter().max().map_or(0, |last| last + 1);
        let wave = |wave| (0..wave_of.len()).filter(|&at| wave_of[at] == wave).collect();
        (0..count).map(wave).collect()
    }
}

/// The observed events of a step.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    started: usize,
    came_up: bool,
    ended: bool,
    stopped: usize,
}

struct World {
    machine: Machine,
    scenario: Scenario,
    origin: Instant,
    now: u64,
    seen: Vec<Seen>,
    /// The ends of starts that will happen, by time.
    coming: BTreeMap<(u64, usize), StartEnd>,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let timeouts = scenario.kinds.iter().map(|(_, millis)| Duration::from_millis(*millis));
        let machine = Machine::new(scenario.waves(), timeouts.collect(), GRACE);
        let seen = vec![Seen::default(); scenario.kinds.len()];
        let origin = crate::time::real_now();
        Self { machine, scenario, origin, now: 0, seen, coming: BTreeMap::new() }
    }

    fn ends(&mut self, step: usize, end: StartEnd) {
        let kind = self.scenario.kinds[step].0;
        if !self.seen[step].ended {
            self.seen[step].ended = true;
            self.seen[step].came_up = end == StartEnd::Up;
            self.coming.retain(|(_, of), _| *of != step);
            let at = self.origin + Duration::from_millis(self.now);
            self.machine.ended(at, step, end);
        } else {
            assert!(matches!(kind, Kind::Stuck(_)), "ended twice");
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(step, _) => {
                for &on in &self.scenario.edges[step] {
                    let seen = self.seen[on];
                    assert!(seen.ended, "{step} started before {on}");
                }
                self.seen[step].started += 1;
                let (after, end) = match self.scenario.kinds[step].0 {
                    Kind::Starts(after) => (after, StartEnd::Up),
                    Kind::HasNothingToStop(after) => (after, StartEnd::Done),
                    Kind::Fails(after) => (after, StartEnd::Failed),
                    Kind::UpWhenCancelled | Kind::EndsWhenAborted | Kind::Stuck(_) => return,
                };
                self.coming.insert((self.now + after, step), end);
            }
            Effect::Cancel(step) => {
                if let Kind::UpWhenCancelled = self.scenario.kinds[step].0 {
                    self.ends(step, StartEnd::Up);
                }
            }
            Effect::Abort(step) => {
                if !matches!(self.scenario.kinds[step].0, Kind::Stuck(_)) {
                    self.ends(step, StartEnd::Failed);
                }
            }
            Effect::GiveUp(step) => {
                assert!(matches!(self.scenario.kinds[step].0, Kind::Stuck(_)));
            }
        }
    }

    /// Runs the start-up to its end. Returns false if it was detached.
    fn start(&mut self) -> bool {
        let (mut interrupt, gone) = (self.scenario.interrupt, self.scenario.gone);
        for _ in 0..10_000 {
            let at = self.origin + Duration::from_millis(self.now);
            for effect in self.machine.step(at) {
                self.carry_out(effect);
            }
            if self.machine.is_settled() {
                return true;
            }
            let due = self
                .machine
                .next_due()
                .map(|due| u64::try_from(due.duration_since(self.origin).as_millis()).unwrap());
            let coming = self.coming.keys().next().map(|(at, _)| *at);
            let next = [due, coming, interrupt, gone].into_iter().flatten().min();
            self.now = next.expect("it waits for something").max(self.now);
            if interrupt.is_some_and(|at| at <= self.now) {
                interrupt = None;
                self.machine.interrupt();
            }
            if gone.is_some_and(|at| at <= self.now) {
                self.machine.detach();
                // Starts in progress are aborted, or come up nevertheless.
                let open: Vec<usize> = (0..self.seen.len())
                    .filter(|&step| self.seen[step].started > 0 && !self.seen[step].ended)
                    .collect();
                for step in open {
                    let end = if step % 2 == 0 { StartEnd::Up } else { StartEnd::Failed };
                    self.ends(step, end);
                }
                assert!(self.machine.is_settled());
                return false;
            }
            while let Some((&(at, step), &end)) = self.coming.iter().next() {
                if at > self.now {
                    break;
                }
                self.ends(step, end);
            }
        }
        panic!("it does not end");
    }

    /// Stops the steps that may be stopped, in random order, until none may.
    fn stop(&mut self, mut pick: impl FnMut(usize) -> usize) -> Vec<usize> {
        let mut stopped = Vec::new();
        loop {
            let mut ready = self.ready();
            if ready.is_empty() {
                return stopped;
            }
            for &step in &ready {
                assert!(self.machine.claim(step));
                assert!(!self.machine.claim(step), "claimed twice");
                self.seen[step].stopped += 1;
            }
            while !ready.is_empty() {
                assert_eq!(self.ready(), [0; 0], "before all of the later wave had stopped");
                let step = ready.swap_remove(pick(ready.len()));
                self.machine.stopped(step);
                stopped.push(step);
            }
        }
    }

    fn ready(&self) -> Vec<usize> {
        let machine = &self.machine;
        (0..self.seen.len()).filter(|&step| machine.is_up(step) && machine.may_stop(step)).collect()
    }
}

proptest! {
    #[test]
    fn steps_that_came_up_are_stopped_once_in_reverse_and_others_are_not(
        scenario in scenario(),
        picks in prop::collection::vec(0..100usize, 10),
    ) {
        let waves = scenario.waves();
        let wave_of = |step: usize| waves.iter().position(|wave| wave.contains(&step)).unwrap();
        let mut world = World::new(scenario);
        let attended = world.start();
        let mut picks = picks.into_iter().cycle();
        let mut stopped = world.stop(|count| picks.next().unwrap() % count);
        // Abandoned starts may come up after start-up has ended.
        for step in 0..world.seen.len() {
            let late = matches!(world.scenario.kinds[step].0, Kind::Stuck(true));
            if late && world.seen[step].started > 0 && !world.seen[step].ended {
                world.ends(step, StartEnd::Up);
            }
        }
        prop_assert!(stopped.is_sorted_by_key(|&step| std::cmp::Reverse(wave_of(step))));
        stopped.extend(world.stop(|count| picks.next().unwrap() % count));

        for (step, seen) in world.seen.iter().enumerate() {
            prop_assert!(seen.started <= 1);
            prop_assert_eq!(seen.stopped, usize::from(seen.came_up), "step {}", step);
            prop_assert!(!seen.came_up || seen.started == 1);
        }
        prop_assert!(world.machine.all_down());
        prop_assert!(world.machine.is_settled());

        let all_started = world.seen.iter().all(|seen| seen.started == 1 && seen.ended);
        match world.machine.halted() {
            None => prop_assert!(all_started && attended),
            Some(Halt::Step(step)) => prop_assert_eq!(world.seen[step].started, 1),
            Some(Halt::Interrupted) => {
                prop_assert!(world.scenario.interrupt.or(world.scenario.gone).is_some());
            }
        }
        // No step starts after a failure in an earlier wave.
        if let Some(Halt::Step(step)) = world.machine.halted() {
            for later in 0..world.seen.len() {
                let came_later = wave_of(later) > wave_of(step);
                prop_assert!(!came_later || world.seen[later].started == 0);
            }
        }
    }

    #[test]
    fn start_up_ends_within_the_longest_timeout_of_each_wave_and_two_graces(scenario in scenario()) {
        let longest = |wave: &Vec<usize>| {
            wave.iter().map(|&step| scenario.kinds[step].1).max().unwrap_or(0)
        };
        let most: u64 = scenario.waves().iter().map(longest).sum::<u64>() + 400;
        let mut world = World::new(scenario);
        world.start();
        prop_assert!(world.now <= most, "{} of {most}", world.now);
    }
}

#[test]
fn a_start_that_comes_up_after_its_timeout_has_failed() {
    let second = Duration::from_secs(1);
    let mut machine = Machine::new(vec![vec![0, 1], vec![2]], vec![second; 3], GRACE);
    let now = crate::time::real_now();
    let _ = machine.step(now);
    machine.ended(now, 1, StartEnd::Up);
    assert_eq!(machine.step(now + second), [Effect::Cancel(0)]);
    machine.ended(now + second, 0, StartEnd::Up);
    assert_eq!(machine.step(now + second), []);
    assert_eq!(machine.halted(), Some(Halt::Step(0)));
    assert!(machine.is_up(0) && machine.is_up(1) && machine.may_stop(0));
}

#[test]
fn a_start_that_comes_up_after_its_timeout_has_failed_even_if_it_was_not_cancelled() {
    let second = Duration::from_secs(1);
    let mut machine = Machine::new(vec![vec![0], vec![1]], vec![second; 2], GRACE);
    let now = crate::time::real_now();
    let _ = machine.step(now);
    assert!(!machine.is_late(0, now + second), "in time");
    assert!(machine.is_late(0, now + 2 * second));
    machine.ended(now + 2 * second, 0, StartEnd::Up);
    assert_eq!(machine.step(now + 2 * second), []);
    assert_eq!(machine.halted(), Some(Halt::Step(0)));
    assert!(machine.is_up(0) && machine.may_stop(0));
}
