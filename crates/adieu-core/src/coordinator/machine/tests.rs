//! Properties that hold for random plans, random tasks and random orders of events.
//!
//! A simulated driver carries out the effects of the machine, on a clock that jumps from event to event.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::budget::Budget;
use crate::phase::{Phase, PhaseSpec};
use crate::plan::Order;

/// How a task behaves when it runs, when it is cancelled, and when it is aborted.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Takes(u64),
    Fails(u64),
    /// Ends when it is cancelled.
    Listens,
    /// Ends when it is aborted.
    Deaf,
    /// Cannot be ended.
    Stuck,
}

#[derive(Clone, Debug)]
struct Scenario {
    sequential: bool,
    kill_after: Option<u64>,
    phases: Vec<(Vec<usize>, u64, bool, bool)>,
    /// The tasks of each phase, built-in phases first.
    tasks: Vec<Vec<(Kind, Option<u64>)>>,
    requests: BTreeMap<u64, Request>,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Climb(Rung),
    Shorten(u64),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => (0..8_000u64).prop_map(Kind::Takes),
        2 => (0..8_000u64).prop_map(Kind::Fails),
        1 => Just(Kind::Listens),
        1 => Just(Kind::Deaf),
        1 => Just(Kind::Stuck),
    ]
}

fn scenario(
    requests: impl Strategy<Value = BTreeMap<u64, Request>>,
) -> impl Strategy<Value = Scenario> {
    let phase = (
        prop::collection::vec(0..20usize, 0..3),
        100..9_000u64,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.9),
    );
    let tasks = prop::collection::vec((kind(), prop::option::weighted(0.2, 100..9_000u64)), 0..3);
    (
        prop::bool::weighted(0.2),
        prop::option::of(1_000..60_000u64),
        prop::collection::vec(phase, 0..8),
        prop::collection::vec(tasks, 20),
        requests,
    )
        .prop_map(|(sequential, kill_after, phases, tasks, requests)| Scenario {
            sequential,
            kill_after,
            phases,
            tasks,
            requests,
        })
}

fn some_requests() -> impl Strategy<Value = BTreeMap<u64, Request>> {
    let request = prop_oneof![
        Just(Request::Climb(Rung::EndWaiting)),
        Just(Request::Climb(Rung::HardStop)),
        (0..20_000u64).prop_map(Request::Shorten),
    ];
    prop::collection::btree_map(0..30_000u64, request, 0..4)
}

impl Scenario {
    fn plan(&self) -> Plan {
        let mut plan = Plan::builder();
        let mut names: Vec<Phase> = Phase::BUILT_IN.to_vec();
        for (depends_on, timeout, recover, enabled) in &self.phases {
            let name = Phase::new(format!("p{}", names.len()));
            let mut spec = PhaseSpec::new(name.clone())
                .timeout(Duration::from_millis(*timeout))
                .recover(*recover)
                .enabled(*enabled);
            for on in depends_on {
                spec = spec.after(names[on % names.len()].clone());
            }
            plan.add(spec).unwrap();
            names.push(name);
        }
        if self.sequential {
            plan.set_order(Order::Sequential);
        }
        plan.build()
    }
}

/// The result of a simulated shutdown.
struct SimulatedRun {
    machine: Machine,
    /// The worst case of the phases after the drain.
    rest: Duration,
    began: Instant,
    ended: Instant,
    limits: Limits,
}

/// The simulated driver.
struct Sim<'a> {
    plan: &'a Plan,
    scenario: &'a Scenario,
    machine: Machine,
    now: Instant,
    kinds: Vec<Kind>,
    /// When each task will be joined. A set, so that the order within an instant is by task.
    joins: BTreeSet<(Instant, TaskId, bool)>,
    opened: BTreeSet<PhaseId>,
    over: usize,
}

impl Sim<'_> {
    fn carry_out(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Open(id) => self.open(id),
                Effect::Start { phase, first, .. } => {
                    let tasks = &self.scenario.tasks[phase.0 % self.scenario.tasks.len()];
                    for (task, (kind, _)) in (first.0..).map(TaskId).zip(tasks) {
                        assert_eq!(task.0, self.kinds.len(), "ids follow each other");
                        self.kinds.push(*kind);
                        if let Kind::Takes(millis) | Kind::Fails(millis) = kind {
                            let at = self.now + Duration::from_millis(*millis);
                            self.joins.insert((at, task, false));
                        }
                    }
                }
                Effect::CancelPhase(id) => {
                    for task in self.machine.phase(id).tasks.clone() {
                        self.tell_to_stop(TaskId(task));
                    }
                }
                Effect::CancelTask(task) => self.tell_to_stop(task),
                Effect::Abort(task) => {
                    if !matches!(self.kinds[task.0], Kind::Stuck) {
                        self.joins.insert((self.now, task, true));
                    }
                }
                Effect::Over => self.over += 1,
                Effect::Cut(..)
                | Effect::EndWaiting
                | Effect::CloseGates
                | Effect::TaskFailed(_)
                | Effect::LateError(..)
                | Effect::PhaseOver(_) => {}
            }
        }
    }

    fn tell_to_stop(&mut self, task: TaskId) {
        if matches!(self.kinds[task.0], Kind::Listens) {
            self.joins.insert((self.now, task, false));
        }
    }

    fn open(&mut self, id: PhaseId) {
        assert!(self.opened.insert(id), "a phase opens once");
        for (before, _) in self.plan.ancestors(id).iter().enumerate().filter(|(_, before)| **before)
        {
            assert!(self.machine.is_over(PhaseId(before)), "a phase waits for all before it");
        }
        if self.plan.get(id).rank() == Rank::Actors {
            let is_over = |other: &PhaseId| self.machine.is_over(*other);
            for other in self.plan.ids().filter(|other| *other != id) {
                let comes_after = self.plan.get(other).rank() == Rank::Last;
                assert_eq!(comes_after, !is_over(&other), "actors end between the two");
            }
        }
        let tasks = self.scenario.tasks[id.0 % self.scenario.tasks.len()].iter();
        let tasks = tasks.map(|(_, timeout)| NewTask {
            name: "task".into(),
            timeout: timeout.map(Duration::from_millis),
        });
        let effects = self.machine.opened(self.now, id, self.time_of(id), tasks);
        self.carry_out(effects);
    }

    /// Returns the worst case of a phase with its tasks, and with two graces.
    fn takes(&self, id: PhaseId) -> Option<Duration> {
        let tasks = &self.scenario.tasks[id.0 % self.scenario.tasks.len()];
        let timeout = self.plan.get(id).timeout();
        let own = tasks.iter().map(|(_, own)| own.map_or(timeout, Duration::from_millis));
        Some(own.max()?.min(timeout) + 2 * self.machine.limits().grace)
    }

    fn time_of(&self, id: PhaseId) -> PhaseTime {
        let phase = self.plan.get(id);
        let rest = phase.is_open_ended().then(|| self.plan.around(id, |id| self.takes(id)).1);
        PhaseTime { timeout: phase.timeout(), rest }
    }

    fn join(&mut self, (at, task, aborted): (Instant, TaskId, bool)) {
        let ended = match self.kinds[task.0] {
            _ if aborted => Ended::Aborted,
            Kind::Fails(_) => Ended::Failed("no".into()),
            Kind::Takes(_) | Kind::Listens | Kind::Deaf | Kind::Stuck => Ended::Finished,
        };
        let effects = self.machine.on(self.now, Event::Joined { task, at, ended });
        self.carry_out(effects);
    }
}

fn simulate(scenario: &Scenario) -> SimulatedRun {
    let plan = scenario.plan();
    let began = crate::time::real_now();
    let kill_after = scenario.kill_after.map(Duration::from_millis);
    let budget = Budget { kill_after, reserve: Duration::from_secs(3) };
    let limits = budget.begin(began, &plan);
    let mut sim = Sim {
        plan: &plan,
        scenario,
        machine: Machine::new(&plan, None, limits, began),
        now: began,
        kinds: Vec::new(),
        joins: BTreeSet::new(),
        opened: BTreeSet::new(),
        over: 0,
    };
    let effects = sim.machine.begin(began);
    sim.carry_out(effects);

    let mut requests = scenario.requests.clone();
    for _ in 0..100_000 {
        if sim.over > 0 {
            break;
        }
        let request = requests.first_key_value().map(|(at, _)| began + Duration::from_millis(*at));
        let join = sim.joins.first().map(|(at, ..)| *at);
        let due = sim.machine.next_due();
        let next = [request, join, due].into_iter().flatten().min();
        sim.now = next.expect("it always has a next instant").max(sim.now);
        if join.is_some_and(|at| at <= sim.now) {
            let join = sim.joins.pop_first().unwrap();
            sim.join(join);
        } else if due.is_some_and(|at| at <= sim.now) {
            let effects = sim.machine.on(sim.now, Event::Tick);
            sim.carry_out(effects);
        } else if let Some((_, request)) = requests.pop_first() {
            let deadline = sim.machine.limits().deadline;
            let effects = match request {
                Request::Climb(rung) => sim.machine.on(sim.now, Event::Climb(rung)),
                Request::Shorten(left) => {
                    let at = sim.now + Duration::from_millis(left);
                    sim.machine.on(sim.now, Event::Shorten(at))
                }
            };
            assert!(sim.machine.limits().deadline <= deadline, "the deadline never counts away");
            sim.carry_out(effects);
        }
    }
    let drain = plan.id("service-requests-done").unwrap();
    let rest = sim.time_of(drain).rest.unwrap();
    assert_eq!(sim.over, 1, "it always ends, once");
    assert!(plan.ids().all(|id| sim.machine.is_over(id)), "every phase is over");
    SimulatedRun { machine: sim.machine, rest, began, ended: sim.now, limits }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // The assertions are in the simulated driver: order, exactly once, always ends.
    #[test]
    fn it_keeps_the_order_and_always_ends(scenario in scenario(some_requests())) {
        simulate(&scenario);
    }

    // Earlier phases cannot spend the time that is kept for later ones.
    #[test]
    fn the_reserve_is_kept(scenario in scenario(Just(BTreeMap::new()))) {
        let run = simulate(&scenario);
        for phase in run.machine.phases() {
            if let PhaseState::Over { ran: Some((_, to)), .. } = phase.state {
                prop_assert!(to <= run.limits.end_of(phase.rank), "{} ended late", phase.name);
            }
        }
        prop_assert!(run.ended <= run.limits.deadline);
    }

    // A drain may take longer than its timeout, but not the time that later phases may need.
    #[test]
    fn s202_the_drain_leaves_the_later_phases_their_time(
        scenario in scenario(Just(BTreeMap::new())),
    ) {
        let SimulatedRun { machine, rest, limits, .. } = simulate(&scenario);
        let drain = machine.phases().iter().find(|phase| phase.name == Phase::SERVICE_REQUESTS_DONE);
        let drain = drain.unwrap();
        let PhaseState::Over { ran: Some((since, over)), .. } = drain.state else { return Ok(()) };
        let least = Duration::from_secs(5);
        if over > since + least + 2 * limits.grace {
            prop_assert!(over + rest + limits.reserve <= limits.deadline);
        }
        let allowed = since + drain.timeout();
        prop_assert!(allowed >= (since + least).min(limits.cut_of(Rank::Early)), "it has its least");
        if scenario.phases.is_empty() && drain.timeout() > least {
            for phase in machine.phases().iter().skip(3) {
                for task in machine.tasks_of(phase) {
                    let TaskState::Over { outcome, took } = &task.state else { continue };
                    let own = task.own.as_ref().map(|own| own.cut);
                    let since = machine.since(task.phase).unwrap();
                    let full = own.map_or(phase.timeout(), |own| own - since).min(phase.timeout());
                    let in_full = !matches!(outcome, Outcome::TimedOut { .. }) || *took >= full;
                    prop_assert!(in_full, "{} was cut too soon", phase.name);
                }
                let skipped = Outcome::Skipped { because: SkipCause::OutOfTime };
                let is_over = |outcome: &Outcome| *outcome == skipped;
                let is_skipped =
                    matches!(&phase.state, PhaseState::Over { outcome, .. } if is_over(outcome));
                prop_assert!(!is_skipped, "{} has no time left", phase.name);
            }
        }
    }

    // However often and late the deadline is shortened, the shutdown is over by then, or at once if it
    // has passed.
    #[test]
    fn it_is_over_by_the_deadline_whatever_is_requested(scenario in scenario(some_requests())) {
        let run = simulate(&scenario);
        let last_request = scenario.requests.keys().last().copied().unwrap_or(0);
        let requested = run.began + Duration::from_millis(last_request);
        let last = run.machine.limits().deadline.max(requested);
        prop_assert!(run.ended <= last, "late by {:?}", run.ended - last);
    }

    #[test]
    fn a_hard_stop_ends_within_the_reserve(scenario in scenario(
        (0..10_000u64).prop_map(|at| BTreeMap::from([(at, Request::Climb(Rung::HardStop))])),
    )) {
        let run = simulate(&scenario);
        let at = *scenario.requests.first_key_value().unwrap().0;
        let stopped = run.began + Duration::from_millis(at);
        if stopped < run.ended {
            let last = (stopped + run.limits.reserve).min(run.limits.deadline);
            prop_assert!(run.ended <= last, "ended {:?} after the hard stop", run.ended - stopped);
        }
    }
}

#[test]
fn actors_get_a_moment_even_when_the_deadline_has_passed() {
    let (plan, now) = (Plan::default(), crate::time::real_now());
    let grace = Duration::from_millis(200);
    let limits = Limits { deadline: now, reserve: Duration::from_secs(3), grace, window: None };
    let mut machine = Machine::new(&plan, None, limits, now);
    let last = plan.id("actor-system-terminate").unwrap();
    assert_eq!(machine.begin(now).last(), Some(&Effect::Open(last)), "all others are skipped");

    let time = PhaseTime { timeout: Duration::from_secs(10), rest: None };
    let tasks = vec![NewTask { name: "x".into(), timeout: None }];
    let effects = machine.opened(now, last, time, tasks.into_iter());
    let cut = now + grace;
    assert_eq!(effects, [Effect::Start { phase: last, first: TaskId(0), cut }]);
    assert_eq!(machine.next_due(), Some(cut));
}

#[test]
fn a_task_that_ended_in_time_has_finished_however_slow_the_news() {
    let (plan, now) = (Plan::default(), crate::time::real_now());
    let budget = Budget { kill_after: None, reserve: Duration::from_secs(3) };
    let mut machine = Machine::new(&plan, None, budget.begin(now, &plan), now);
    let phase = plan.id("before-service-unbind").unwrap();
    assert_eq!(machine.begin(now), [Effect::Open(phase)]);
    let timeout = Duration::from_secs(5);
    let tasks = vec![NewTask { name: "x".into(), timeout: None }; 2];
    let time = PhaseTime { timeout, rest: None };
    let _ = machine.opened(now, phase, time, tasks.into_iter());
    let (cut, late) = (now + timeout, now + 2 * timeout);
    assert_eq!(machine.on(late, Event::Tick), [Effect::CancelPhase(phase)]);
    for (task, at) in [(0, cut - Duration::from_millis(1)), (1, cut)] {
        let (task, ended) = (TaskId(task), Ended::Finished);
        let _ = machine.on(late, Event::Joined { task, at, ended });
    }
    let outcome = |task| match &machine.task(TaskId(task)).state {
        TaskState::Over { outcome, .. } => outcome.clone(),
        TaskState::Running | TaskState::Cancelling(_) | TaskState::Aborting(_) => {
            panic!("not over")
        }
    };
    assert_eq!((outcome(0), outcome(1)), (Outcome::Finished, Outcome::TimedOut { after: timeout }));
}
