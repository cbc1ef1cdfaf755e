//! A simulated fleet: real policies and drivers on the paused clock, and a store with faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Config, KillAfter, Reason, Shutdown, adapter};
use tokio::time::{Instant, sleep};

use crate::breaker::Standing;
use crate::rate::{Gcra, Taken};
use crate::store::{
    Force, Memory, Probe, Probed, Reply, Report, Settled, SharedStore, Store, Synced,
};
use crate::striped::lock;
use crate::{
    Attempt, Breaker, BreakerState, CallError, Code, Policies, Policy, PolicyBuilder, Rate,
    WithoutStore,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The faults of one replica's way to the store.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Questions do not arrive.
    is_cut: bool,
    /// Of a hundred answers, so many are lost after the store has acted on the question.
    lost: u8,
    /// How long a question and its answer take together, at most. Answers overtake each other.
    delay: Duration,
}

/// A store in memory behind faults.
struct Faulty {
    memory: Memory,
    faults: Arc<Mutex<Faults>>,
    random: Mutex<fastrand::Rng>,
    /// How many questions were sent.
    questions: Arc<Mutex<u64>>,
}

impl Faulty {
    /// Waits until the question arrives. Returns the way of its answer.
    async fn fate(&self) -> RequestFault {
        *lock(&self.questions) += 1;
        let faults = *lock(&self.faults);
        if faults.is_cut {
            std::future::pending::<()>().await;
        }
        let (fate, way) = {
            let mut random = lock(&self.random);
            let delay = faults.delay.mul_f64(random.f64());
            let way = delay.mul_f64(random.f64());
            (RequestFault { is_lost: random.u8(0..100) < faults.lost, way_back: delay - way }, way)
        };
        sleep(way).await;
        fate
    }
}

/// What happens to an answer.
struct RequestFault {
    is_lost: bool,
    way_back: Duration,
}

macro_rules! behind_faults {
    ($self:ident, $($question:tt)+) => {
        Box::pin(async move {
            let fate = $self.fate().await;
            let answer = $self.memory.$($question)+.await;
            if fate.is_lost {
                std::future::pending::<()>().await;
            }
            sleep(fate.way_back).await;
            answer
        })
    };
}

impl Store for Faulty {
    fn take<'a>(&'a self, key: &'a str, limit: Gcra, wanted: u32) -> Reply<'a, Taken> {
        behind_faults!(self, take(key, limit, wanted))
    }

    fn sync<'a>(&'a self, service: &'a str, report: &'a Report) -> Reply<'a, Synced> {
        behind_faults!(self, sync(service, report))
    }

    fn probe<'a>(&'a self, service: &'a str, probe: &'a Probe) -> Reply<'a, Probed> {
        behind_faults!(self, probe(service, probe))
    }

    fn settle<'a>(&'a self, service: &'a str, settled: &'a Settled) -> Reply<'a, Option<Standing>> {
        behind_faults!(self, settle(service, settled))
    }

    fn force<'a>(&'a self, service: &'a str, force: &'a Force) -> Reply<'a, ()> {
        behind_faults!(self, force(service, force))
    }

    fn reconnect(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A process of the simulated fleet.
struct Replica {
    shutdown: Shutdown,
    policies: Policies,
    policy: Policy,
    faults: Arc<Mutex<Faults>>,
    questions: Arc<Mutex<u64>>,
}

impl Replica {
    fn start(memory: &Memory, build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> Self {
        let config = Config::for_tests().kill_after(KillAfter::After(secs(20)));
        let shutdown = Shutdown::configured(config).unwrap();
        let policy = build(Policy::new("payments")).start(&shutdown).unwrap();
        let (faults, questions) = (Arc::default(), Arc::default());
        let store = Faulty {
            memory: memory.clone(),
            faults: Arc::clone(&faults),
            random: Mutex::new(fastrand::Rng::with_seed(7)),
            questions: Arc::clone(&questions),
        };
        let policies: Policies = [policy.clone()].into_iter().collect();
        let policies = policies.shared(SharedStore(Arc::new(store)), "checkout").unwrap();
        shutdown.mark_started();
        Self { shutdown, policies, policy, faults, questions }
    }

    fn set(&self, faults: Faults) {
        *lock(&self.faults) = faults;
    }

    async fn call(&self, is_well: bool) -> Result<(), CallError<&'static str>> {
        self.policy.call(async |_: Attempt| if is_well { Ok(()) } else { Err("sick") }).await
    }

    async fn calls(&self, count: usize, is_well: bool) {
        for _ in 0..count {
            let _ = self.call(is_well).await;
        }
    }

    fn breaker(&self) -> BreakerState {
        self.policy.status().breaker.unwrap()
    }

    fn is_open(&self) -> bool {
        matches!(self.breaker(), BreakerState::Open { .. })
    }

    fn is_closed(&self) -> bool {
        self.breaker() == BreakerState::Closed
    }
}

fn with_breaker(policy: PolicyBuilder) -> PolicyBuilder {
    policy.breaker(Breaker::at(0.5).of(20).opens_for(secs(5))).timeout(secs(1))
}

fn fleet(count: usize, build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> (Vec<Replica>, Memory) {
    let memory = Memory::new();
    ((0..count).map(|_| Replica::start(&memory, &build)).collect(), memory)
}

/// Waits until this holds for all replicas; returns how long that took.
async fn until_all(replicas: &[Replica], holds: impl Fn(&Replica) -> bool) -> Duration {
    let began = Instant::now();
    while !replicas.iter().all(&holds) {
        assert!(began.elapsed() < secs(60), "not within a minute");
        sleep(ms(1)).await;
    }
    began.elapsed()
}

fn code<T: std::fmt::Debug>(result: Result<T, CallError<&'static str>>) -> Code {
    match result {
        Err(CallError::Refused(refused)) => refused.code(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn s911_one_replica_with_calls_protects_all_others() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    let took = until_all(&replicas, Replica::is_open).await;
    assert!(took <= ms(250), "{took:?}");
    assert_eq!(code(replicas[4].call(true).await), Code::Open);
}

#[tokio::test(start_paused = true)]
async fn s911_one_sick_replica_among_healthy_ones_opens_only_its_own() {
    let (replicas, _) = fleet(5, with_breaker);
    for replica in &replicas[1..] {
        replica.calls(3, true).await;
    }
    sleep(ms(300)).await;
    for _ in 0..100 {
        for replica in &replicas[1..] {
            replica.calls(3, true).await;
        }
        replicas[0].calls(10, false).await;
        sleep(ms(50)).await;
        assert!(replicas[1..].iter().all(Replica::is_closed));
    }
    assert!(!replicas[0].is_closed());
}

#[tokio::test(start_paused = true)]
async fn s911_two_witnesses_open_the_breaker_of_all_if_together_enough_has_failed() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    // No replica has enough calls for its own breaker.
    for replica in &replicas[..4] {
        replica.calls(6, false).await;
    }
    until_all(&replicas, Replica::is_open).await;
}

// Answers take up to 25 ms, and replicas do not tick at the same time.
#[tokio::test(start_paused = true)]
async fn s913_a_trip_reaches_every_replica_within_two_ticks_and_two_answers() {
    let mut longest = Duration::ZERO;
    for run in 0..100 {
        let (replicas, _) = fleet(5, with_breaker);
        for replica in &replicas {
            replica.set(Faults { delay: ms(24), ..Faults::default() });
        }
        sleep(ms(300 + run)).await;
        assert!(replicas.iter().all(|replica| !replica.policies.store().unwrap().is_away));
        replicas[run as usize % 5].calls(20, false).await;
        longest = longest.max(until_all(&replicas, Replica::is_open).await);
    }
    assert!(longest <= ms(250), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn s910_a_store_that_has_lost_everything_is_told_again() {
    let (replicas, memory) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    memory.flush();
    // A replica that starts after that learns it from the others.
    let late = Replica::start(&memory, with_breaker);
    until_all(&[late], Replica::is_open).await;
    assert!(replicas.iter().all(Replica::is_open));
}

#[tokio::test(start_paused = true)]
async fn s910_reports_that_are_lost_delay_a_trip_and_repeated_ones_cause_none() {
    let (replicas, _) = fleet(3, with_breaker);
    for replica in &replicas {
        replica.set(Faults { lost: 50, ..Faults::default() });
    }
    // Half of the answers are lost after the store has counted the report.
    for _ in 0..50 {
        replicas[0].calls(2, true).await;
        replicas[0].calls(1, false).await;
        sleep(ms(100)).await;
        assert!(replicas.iter().all(Replica::is_closed), "a third has failed");
    }
    replicas[0].calls(60, false).await;
    until_all(&replicas, Replica::is_open).await;
}

#[tokio::test(start_paused = true)]
async fn s914_one_probe_of_the_whole_fleet_at_a_time_and_one_success_closes_all() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let inside = Mutex::new((0, 0));
    let calls = replicas.iter().map(|replica| async {
        for _ in 0..5 {
            let _ = replica
                .policy
                .call(async |_: Attempt| {
                    {
                        let mut inside = lock(&inside);
                        inside.0 += 1;
                        inside.1 = inside.1.max(inside.0);
                    }
                    sleep(ms(400)).await;
                    lock(&inside).0 -= 1;
                    Err::<(), _>("sick")
                })
                .await;
            sleep(ms(20)).await;
        }
    });
    futures(calls).await;
    assert_eq!(lock(&inside).1, 1, "probes at a time");
    // It failed, so the break is twice as long.
    assert!(replicas.iter().all(Replica::is_open));
    sleep(ms(11_000)).await;
    assert_eq!(replicas[3].call(true).await, Ok(()));
    assert!(until_all(&replicas, Replica::is_closed).await <= ms(250));
}

/// Runs futures at the same time, on this task.
async fn futures(futures: impl Iterator<Item: Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn s914_a_replica_that_vanishes_with_the_probe_blocks_no_longer_than_its_lease() {
    let (mut replicas, _) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let prober = replicas.remove(0);
    let mut hanging = Box::pin(
        prober
            .policy
            .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await),
    );
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = sleep(ms(100)) => {}
    }
    assert_eq!(code(replicas[0].call(true).await), Code::Open, "the probe is running elsewhere");
    // It is gone without a word, as after kill -9.
    prober.set(Faults { is_cut: true, ..Faults::default() });
    // A lease is the timeout and one second.
    let began = Instant::now();
    while replicas[0].call(true).await.is_err() {
        sleep(ms(10)).await;
    }
    assert!(began.elapsed() <= ms(2_200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s914_a_probe_whose_call_is_dropped_is_returned_to_the_fleet() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let hanging = replicas[0]
        .policy
        .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await);
    assert!(tokio::time::timeout(ms(100), hanging).await.is_err());
    sleep(ms(110)).await;
    assert_eq!(replicas[1].call(true).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s914_a_probe_that_is_granted_after_its_call_has_gone_is_returned() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    replicas[0].set(Faults { delay: ms(24), ..Faults::default() });
    for _ in 0..5 {
        assert!(tokio::time::timeout(ms(1), replicas[0].call(true)).await.is_err());
        sleep(ms(150)).await;
    }
    // Less than the lease of two seconds has passed.
    assert_eq!(replicas[1].call(true).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s915_a_process_that_is_not_ready_or_shuts_down_is_no_witness() {
    let memory = Memory::new();
    let idle = Replica::start(&memory, with_breaker);
    let starting = Replica::start(&memory, with_breaker);
    let database = starting.shutdown.add_check("database");
    sleep(ms(300)).await;
    starting.calls(40, false).await;
    sleep(ms(500)).await;
    assert!(starting.is_open() && idle.is_closed());
    database.mark_ready();
    until_all(std::slice::from_ref(&idle), Replica::is_open).await;
}

#[tokio::test(start_paused = true)]
async fn s915_a_process_takes_its_snapshots_back_when_its_shutdown_begins() {
    let (replicas, _) = fleet(3, with_breaker);
    let gate = replicas[0].shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    sleep(ms(300)).await;
    // One failure less than what opens the breaker.
    replicas[0].calls(19, false).await;
    sleep(ms(300)).await;
    let completed = replicas[0].shutdown.run(Reason::Unknown);
    sleep(ms(100)).await;
    // Together with those of the first they would be enough.
    replicas[1].calls(1, false).await;
    replicas[0].calls(30, false).await;
    sleep(ms(500)).await;
    assert!(replicas.iter().all(Replica::is_closed));
    drop(pass);
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s915_a_process_returns_its_probes_when_its_shutdown_begins() {
    let (replicas, _) = fleet(2, with_breaker);
    let gate = replicas[0].shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    sleep(ms(300)).await;
    replicas[1].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let mut probing = Box::pin(
        pass.scope(
            replicas[0]
                .policy
                .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await),
        ),
    );
    assert!(tokio::time::timeout(ms(50), &mut probing).await.is_err());
    assert_eq!(code(replicas[1].call(true).await), Code::Open);
    let completed = replicas[0].shutdown.run(Reason::Unknown);
    sleep(ms(110)).await;
    assert_eq!(replicas[1].call(true).await, Ok(()), "the probe was free at once");
    drop(probing);
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s916_a_policy_is_forced_open_and_released_in_the_whole_fleet() {
    let (replicas, memory) = fleet(4, with_breaker);
    sleep(ms(300)).await;
    replicas[0].policies.force_open("payments", secs(600), "ops").await.unwrap();
    let is_forced = |replica: &Replica| replica.policy.status().forced.is_some();
    assert!(until_all(&replicas, is_forced).await <= ms(150));
    assert_eq!(code(replicas[3].call(true).await), Code::ForcedOpen);
    assert_eq!(replicas[3].policy.status().forced_by.as_deref(), Some("ops"));
    // A replica that starts later learns it, too, and a store that forgets it releases none.
    let late = Replica::start(&memory, with_breaker);
    until_all(&[late], is_forced).await;
    memory.flush();
    sleep(secs(5)).await;
    assert!(replicas.iter().all(is_forced));
    replicas[1].policies.release("payments", "ops").await.unwrap();
    assert!(until_all(&replicas, |replica| !is_forced(replica)).await <= ms(150));
    assert_eq!(replicas[3].call(true).await, Ok(()));
    // It ends by itself.
    replicas[2].policies.force_open("payments", secs(2), "ops").await.unwrap();
    until_all(&replicas, is_forced).await;
    assert!(until_all(&replicas, |replica| !is_forced(replica)).await <= ms(2_100));
}

// While answers take up to 24 ms and overtake each other: also those to reports that the store has
// answered before.
#[tokio::test(start_paused = true)]
async fn s1242_the_process_that_forces_a_policy_open_or_releases_it_refuses_or_calls_at_once() {
    let (replicas, _) = fleet(2, with_breaker);
    for replica in &replicas {
        replica.set(Faults { delay: ms(24), ..Faults::default() });
    }
    let forced = |replica: &Replica| replica.policy.status().forced;
    for run in 0..200 {
        // News of breakers make each report of this time answer with everything.
        replicas[1].calls(20, false).await;
        sleep(ms(run)).await;
        let (one, time) = (&replicas[0], secs(600 + run));
        one.policies.force_open("payments", time, "ops").await.unwrap();
        for _ in 0..150 {
            let left = forced(one).expect("forced open");
            assert!(left <= time && left > time - ms(200), "{left:?} of {time:?}");
            sleep(ms(1)).await;
        }
        assert_eq!(one.policy.status().forced_by.as_deref(), Some("ops"));
        assert_eq!(code(one.call(true).await), Code::ForcedOpen);
        one.policies.release("payments", "ops").await.unwrap();
        for _ in 0..150 {
            assert_eq!(forced(one), None);
            sleep(ms(1)).await;
        }
        // What the other replica has done since is learnt, although it was done in the same tick.
        replicas[1].policies.force_open("payments", time, "dev").await.unwrap();
        assert!(until_all(&replicas, |replica| forced(replica).is_some()).await <= ms(150));
        one.policies.release("payments", "ops").await.unwrap();
        until_all(&replicas, |replica| forced(replica).is_none()).await;
    }
}

// The caller cannot know which of two requests the store has processed last, but all replicas agree.
#[tokio::test(start_paused = true)]
async fn s1242_after_requests_at_the_same_time_all_replicas_agree() {
    let (replicas, memory) = fleet(2, with_breaker);
    for replica in &replicas {
        replica.set(Faults { delay: ms(24), ..Faults::default() });
    }
    for _ in 0..100 {
        let (open, release) = tokio::join!(
            replicas[0].policies.force_open("payments", secs(600), "ops"),
            replicas[0].policies.release("payments", "ops"),
        );
        open.unwrap();
        release.unwrap();
        sleep(ms(300)).await;
        let late = Replica::start(&memory, with_breaker);
        sleep(ms(300)).await;
        let forced = |replica: &Replica| replica.policy.status().forced.is_some();
        assert_eq!(forced(&replicas[0]), forced(&late));
        assert_eq!(forced(&replicas[1]), forced(&late));
    }
}

#[tokio::test(start_paused = true)]
async fn s916_if_the_store_is_away_forcing_is_an_error() {
    let (replicas, _) = fleet(1, with_breaker);
    sleep(ms(300)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let error = replicas[0].policies.force_open("payments", secs(9), "ops").await.unwrap_err();
    assert!(error.to_string().contains("no answer from the store"), "{error}");
    assert!(replicas[0].policies.force_open("other", secs(9), "ops").await.is_err());
}

fn with_rate(without_store: WithoutStore) -> impl Fn(PolicyBuilder) -> PolicyBuilder {
    move |policy| policy.rate(Rate::per_second(500).burst(50).without_store(without_store))
}

/// Calls at 1,500/s for `seconds`; returns when calls were admitted, in milliseconds, and the longest.
async fn overload(
    replicas: &[Replica],
    seconds: u64,
    choose: impl Fn(u64) -> usize,
) -> (Vec<u64>, Duration) {
    let (began, mut admitted, mut longest) = (Instant::now(), Vec::new(), Duration::ZERO);
    for call in 0..seconds * 1_500 {
        tokio::time::sleep_until(began + Duration::from_micros(call * 1_000_000 / 1_500)).await;
        let called = Instant::now();
        if replicas[choose(call)].call(true).await.is_ok() {
            admitted.push(u64::try_from(began.elapsed().as_millis()).unwrap());
        }
        longest = longest.max(called.elapsed());
    }
    (admitted, longest)
}

/// In any time T at most `rate * (T + 100 ms) + burst`.
fn check_rate(admitted: &[u64], rate: f64, burst: f64) {
    for (last, until) in admitted.iter().enumerate() {
        for first in (0..=last).rev().step_by(11) {
            let count = (last - first + 1) as f64;
            let most = rate * ((until - admitted[first]) as f64 + 101.0) / 1e3 + burst;
            assert!(count <= most, "{count} of {most} from {} to {until}", admitted[first]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s917_a_fleet_admits_its_rate_however_the_load_is_spread() {
    let even = |call: u64| (call % 5) as usize;
    let hopping = |call: u64| (call / 300 % 5) as usize;
    let hog = |call: u64| if call.is_multiple_of(4) { (call / 4 % 4) as usize + 1 } else { 0 };
    let loads: [(&dyn Fn(u64) -> usize, f64); 3] = [(&even, 0.97), (&hopping, 0.95), (&hog, 0.97)];
    for (load, least) in loads {
        let (replicas, _) = fleet(5, with_rate(WithoutStore::Share));
        sleep(ms(300)).await;
        let before: u64 = replicas.iter().map(|replica| *lock(&replica.questions)).sum();
        let (admitted, _) = overload(&replicas, 10, load).await;
        check_rate(&admitted, 500.0, 50.0);
        let share = admitted.len() as f64 / 5_050.0;
        assert!((least..=1.01).contains(&share), "{share}");
        // Besides one report of each replica in a tick.
        let asked: u64 = replicas.iter().map(|replica| *lock(&replica.questions)).sum();
        let per_call = (asked - before) as f64 / 15_000.0;
        assert!(per_call < 0.3, "{per_call}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1550_a_fleet_with_a_low_rate_admits_all_of_it() {
    let (replicas, _) = fleet(5, |policy| policy.rate(Rate::per_second(10).burst(5)));
    sleep(ms(300)).await;
    let mut admitted = Vec::new();
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(7));
    // Twice as many calls as the rate allows, at random times.
    while began.elapsed() < secs(60) {
        let at = u64::try_from(began.elapsed().as_millis()).unwrap();
        if replicas[random.usize(..5)].call(true).await.is_ok() {
            admitted.push(at);
        }
        sleep(ms(random.u64(..100))).await;
    }
    check_rate(&admitted, 10.0, 5.0);
    let share = admitted.len() as f64 / 605.0;
    assert!((0.97..=1.01).contains(&share), "{share}");
}

#[tokio::test(start_paused = true)]
async fn s922_a_store_that_hangs_costs_25_ms_once() {
    let (replicas, _) = fleet(5, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    overload(&replicas, 1, |call| (call % 5) as usize).await;
    for replica in &replicas {
        replica.set(Faults { is_cut: true, ..Faults::default() });
    }
    let (_, longest) = overload(&replicas, 1, |call| (call % 5) as usize).await;
    assert!(longest <= ms(26), "{longest:?}");
    assert!(replicas.iter().all(|replica| replica.policies.store().unwrap().is_away));
    // From now on no call waits.
    let (admitted, longest) = overload(&replicas, 5, |call| (call % 5) as usize).await;
    assert_eq!(longest, Duration::ZERO);
    check_rate(&admitted, 500.0, 50.0);
    assert!(admitted.len() > 2_400, "{}", admitted.len());
    for replica in &replicas {
        replica.set(Faults::default());
    }
    until_all(&replicas, |replica| !replica.policies.store().unwrap().is_away).await;
}

#[tokio::test(start_paused = true)]
async fn s922_a_store_that_is_slow_costs_each_call_25_ms_at_most() {
    let (replicas, _) = fleet(3, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    for replica in &replicas {
        replica.set(Faults { delay: ms(60), lost: 10, ..Faults::default() });
    }
    let (_, longest) = overload(&replicas, 20, |call| (call % 3) as usize).await;
    assert!(longest <= ms(26), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn s922_a_call_that_needs_several_answers_waits_25_ms_in_all() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    replicas[0].set(Faults { delay: ms(24), ..Faults::default() });
    let longest = Mutex::new(Duration::ZERO);
    for _ in 0..30 {
        // The first question is for one permit, and many calls wait for it.
        let calls = (0..40).map(|_| async {
            let called = Instant::now();
            let _ = replicas[0].call(true).await;
            let mut longest = lock(&longest);
            *longest = longest.max(called.elapsed());
        });
        futures(calls).await;
        sleep(secs(3)).await;
    }
    let longest = *lock(&longest);
    assert!(longest > ms(20) && longest <= ms(26), "{longest:?}");
    assert!(!replicas[0].policies.store().unwrap().is_away);
}

#[tokio::test(start_paused = true)]
async fn s923_without_the_store_a_rate_limit_does_what_was_declared() {
    for (without_store, expected) in [
        (WithoutStore::Share, 1_000.0 / 1_500.0),
        (WithoutStore::Open, 1.0),
        (WithoutStore::Closed, 0.0),
    ] {
        let (replicas, _) = fleet(2, with_rate(without_store));
        sleep(ms(300)).await;
        for replica in &replicas {
            replica.set(Faults { is_cut: true, ..Faults::default() });
        }
        // The demand of one replica alone: half of the rate is its share.
        until_all(&replicas, |replica| replica.policies.store().unwrap().is_away).await;
        let (admitted, _) = overload(&replicas[..1], 4, |_| 0).await;
        let share = admitted.len() as f64 / 6_000.0;
        let expected = expected * if without_store == WithoutStore::Share { 0.25 } else { 1.0 };
        assert!((share - expected).abs() < 0.02, "{without_store:?}: {share}");
        assert!(replicas[0].policies.store().unwrap().decided_alone >= 6_000);
        if without_store == WithoutStore::Closed {
            assert_eq!(code(replicas[0].call(true).await), Code::StoreAway);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s923_a_replica_that_loses_the_store_gets_no_new_burst() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    overload(&replicas, 2, |_| 0).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let (admitted, _) = overload(&replicas, 1, |_| 0).await;
    // One second of the rate, and what was left of the last slice. A new burst would be 50 more.
    assert!(admitted.len() <= 530, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn s924_without_the_store_each_breaker_works_alone() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    for replica in &replicas {
        replica.set(Faults { is_cut: true, ..Faults::default() });
    }
    sleep(secs(1)).await;
    replicas[0].calls(20, false).await;
    assert!(replicas[0].is_open());
    sleep(ms(5_600)).await;
    assert!(replicas[1].is_closed());
    assert_eq!(replicas[0].call(true).await, Ok(()));
    assert!(replicas[0].is_closed());
}

#[tokio::test(start_paused = true)]
async fn s1559_a_recovery_that_one_replica_found_without_the_store_closes_the_breaker_of_all() {
    let (replicas, _) = fleet(3, with_breaker);
    for _ in 0..2 {
        replicas[0].calls(20, false).await;
        until_all(&replicas, Replica::is_open).await;
        // The replica with calls loses the store, and probes alone.
        replicas[0].set(Faults { is_cut: true, ..Faults::default() });
        sleep(secs(6)).await;
        assert_eq!(replicas[0].call(true).await, Ok(()));
        assert!(replicas[0].is_closed() && replicas[1].is_open() && replicas[2].is_open());
        replicas[0].set(Faults::default());
        // The others have no call.
        assert!(until_all(&replicas, Replica::is_closed).await <= secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn s920_at_the_end_a_process_leaves_the_fleet_and_no_task_remains() {
    let (mut replicas, _) = fleet(3, with_breaker);
    let count = |replica: &Replica| replica.policies.store().unwrap().replicas;
    until_all(&replicas, |replica| count(replica) == 3).await;
    let leaving = replicas.remove(0);
    let report = leaving.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(until_all(&replicas, |replica| count(replica) == 2).await <= ms(150));
    // A process that dies is forgotten after three seconds.
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let took = until_all(&replicas[1..], |replica| count(replica) == 1).await;
    assert!((ms(2_500)..ms(3_300)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn s920_a_store_that_hangs_does_not_delay_the_shutdown() {
    let (replicas, _) = fleet(1, with_breaker);
    sleep(ms(300)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let began = Instant::now();
    let report = replicas[0].shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(began.elapsed() <= ms(100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s921_readiness_does_not_depend_on_the_store() {
    let memory = Memory::new();
    let replica = Replica::start(&memory, with_breaker);
    replica.set(Faults { is_cut: true, ..Faults::default() });
    replica.calls(30, false).await;
    sleep(secs(2)).await;
    assert!(replica.is_open() && replica.policies.store().unwrap().is_away);
    assert!(replica.shutdown.readiness().is_ready());
}

#[tokio::test(start_paused = true)]
async fn s1234_if_requested_readiness_depends_on_the_store() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    replica.policies.check("store").unwrap();
    let is_ready = || replica.shutdown.readiness().is_ready();
    assert!(!is_ready(), "the store has not answered yet");
    sleep(secs(1)).await;
    assert!(is_ready());
    replica.set(Faults { is_cut: true, ..Faults::default() });
    sleep(secs(1)).await;
    assert!(!is_ready());
    let checks = replica.shutdown.checks();
    assert!(format!("{checks:?}").contains("the store does not answer"), "{checks:?}");
    // A check that is added while the store is away fails at once.
    replica.policies.check("again").unwrap();
    replica.set(Faults::default());
    sleep(secs(3)).await;
    assert!(is_ready());
    let local: Policies = [replica.policy.clone()].into_iter().collect();
    let error = local.check("store").unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to add check store: the policies are not shared; call `shared` first"
    );
}

#[tokio::test(start_paused = true)]
async fn s1236_metrics_show_whether_the_store_answers() {
    let replica = Replica::start(&Memory::new(), |policy| {
        policy.rate(Rate::per_second(10).burst(1).without_store(WithoutStore::Closed))
    });
    let has = |line: &str| {
        let (_, page) = adapter::pages(&replica.shutdown).remove(0);
        let mut metrics = adapter::Metrics::default();
        page.metrics(&mut metrics);
        let text = metrics.to_string();
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    };
    let is_shown_away = || {
        let (_, page) = adapter::pages(&replica.shutdown).remove(0);
        page.status()["policies"][0]["store"]["away"].as_bool().unwrap()
    };
    sleep(secs(1)).await;
    assert!(!is_shown_away());
    has("adieu_resilience_store{service=\"checkout\"} 1");
    has("adieu_resilience_replicas{service=\"checkout\"} 1");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 0");
    replica.set(Faults { is_cut: true, ..Faults::default() });
    sleep(secs(1)).await;
    replica.calls(3, true).await;
    assert!(is_shown_away());
    has("adieu_resilience_store{service=\"checkout\"} 0");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 1");
    has("adieu_resilience_decided_alone_total{service=\"checkout\"} 3");
    has("adieu_resilience_refused_total{policy=\"payments\",code=\"store-away\"} 3");
    replica.set(Faults::default());
    sleep(secs(3)).await;
    has("adieu_resilience_store{service=\"checkout\"} 1");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 1");
}

#[tokio::test(start_paused = true)]
async fn s927_each_key_is_shared_apart_and_a_new_key_begins_as_the_fleet_knows_it() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    let call = async |replica: &Replica, key: &str, is_well: bool| {
        let call = replica.policy.caller().key(key);
        call.call(async |_: Attempt| if is_well { Ok(()) } else { Err("sick") }).await
    };
    let long = "tenant ".repeat(100);
    for key in ["tenant 7", &long] {
        for _ in 0..20 {
            let _ = call(&replicas[0], key, false).await;
        }
    }
    sleep(ms(250)).await;
    // The other replica has not used these keys before.
    assert_eq!(code(call(&replicas[1], "tenant 7", true).await), Code::Open);
    assert_eq!(code(call(&replicas[1], &long, true).await), Code::Open);
    assert_eq!(call(&replicas[1], "tenant 8", true).await, Ok(()));
    assert!(replicas[1].is_closed(), "calls without a key");
}

// Random outages of the store, drops of calls, failures of the backend and restarts of replicas. After
// all that, the backend has recovered: within a lease and the longest break, every replica has let a
// call through.
#[tokio::test(start_paused = true)]
async fn s926_whatever_happens_a_call_is_let_through_after_a_lease_and_a_break() {
    let build = |policy: PolicyBuilder| {
        let breaker = Breaker::at(0.5).of(5).over(secs(2)).opens_for(secs(1)).at_most(secs(4));
        policy.breaker(breaker).timeout(secs(1))
    };
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut replicas, memory) = fleet(4, build);
        for _ in 0..60 {
            let at = random.usize(0..replicas.len());
            let replica = &replicas[at];
            match random.u8(0..12) {
                0 => replica.set(Faults { is_cut: true, ..Faults::default() }),
                1 => replica.set(Faults { lost: random.u8(0..60), ..Faults::default() }),
                2 => replica.set(Faults { delay: ms(random.u64(0..60)), ..Faults::default() }),
                3 | 4 => replica.set(Faults::default()),
                5 => memory.flush(),
                6 => {
                    let hanging = replica.policy.call(async |_: Attempt| {
                        std::future::pending::<Result<(), &'static str>>().await
                    });
                    let _ = tokio::time::timeout(ms(random.u64(0..1_500)), hanging).await;
                }
                7 => replicas[at] = Replica::start(&memory, build),
                8 => replica.calls(6, true).await,
                _ => replica.calls(6, false).await,
            }
            sleep(ms(random.u64(0..700))).await;
        }
        for replica in &replicas {
            if random.bool() {
                replica.set(Faults::default());
            }
        }
        // A lease is 2 s, and a break at most 4.4 s. The reports that are still to be sent, and the
        // pause between two requests to the store, add less than two seconds.
        let began = Instant::now();
        for (at, replica) in replicas.iter().enumerate() {
            while replica.call(true).await.is_err() {
                assert!(
                    began.elapsed() < ms(8_400),
                    "seed {seed}: replica {at} {:?}",
                    replica.breaker()
                );
                sleep(ms(50)).await;
            }
        }
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s1552_each_time_that_a_policy_is_forced_open_or_released_is_logged_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false)
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let replica = Replica::start(&Memory::new(), with_breaker);
    sleep(secs(1)).await;
    // The second time after the first has elapsed.
    for _ in 0..2 {
        replica.policies.force_open("payments", secs(2), "ops").await.unwrap();
        sleep(secs(5)).await;
    }
    // A release changes nothing if the policy is not forced open.
    replica.policies.release("payments", "ops").await.unwrap();
    sleep(secs(1)).await;
    replica.policies.force_open("payments", secs(9), "ops").await.unwrap();
    replica.policies.force_open("payments", secs(9), "dba").await.unwrap();
    replica.policies.release("payments", "ops").await.unwrap();
    sleep(secs(1)).await;
    // The report is there after all lines have been logged.
    replica.shutdown.run(Reason::Unknown).await.unwrap();
    let lines = String::from_utf8(lock(&lines.0).clone()).unwrap();
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("policy forced open"), 4, "{lines}");
    assert_eq!(count("by=\"dba\""), 1, "{lines}");
    assert_eq!(count("policy released"), 1, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn s1553_if_the_store_does_not_answer_a_release_changes_nothing() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    sleep(secs(1)).await;
    replica.policy.force_open(secs(600));
    replica.set(Faults { is_cut: true, ..Faults::default() });
    replica.policies.release("payments", "ops").await.unwrap_err();
    assert_eq!(code(replica.call(true).await), Code::ForcedOpen);
    replica.set(Faults::default());
    replica.policies.release("payments", "ops").await.unwrap();
    assert_eq!(replica.call(true).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s925_that_the_store_is_away_and_that_it_is_back_is_logged_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false)
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let replica = Replica::start(&Memory::new(), with_breaker);
    sleep(secs(1)).await;
    for is_cut in [true, false] {
        replica.set(Faults { is_cut, ..Faults::default() });
        sleep(secs(5)).await;
    }
    // The report is there after all lines have been logged.
    replica.shutdown.run(Reason::Unknown).await.unwrap();
    let lines = String::from_utf8(lock(&lines.0).clone()).unwrap();
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("store away; policies decide alone"), 1, "{lines}");
    assert_eq!(count("no answer within 25ms"), 1, "{lines}");
    assert_eq!(count("store answers again"), 1, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn s928_a_name_that_is_not_valid_and_sharing_twice_are_errors() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    let share = |service: &str| replica.policies.clone().shared(Memory::new(), service);
    assert!(share("check out").unwrap_err().to_string().contains("\"check out\""));
    let twice = share("checkout").unwrap_err().to_string();
    assert_eq!(twice, "failed to share policy payments: it is shared already");
}

#[test]
fn s910_a_snapshot_is_sent_when_it_has_changed_and_every_second() {
    use super::{Cadence, Sent, TICK};
    use crate::breaker::{Terms, WindowCount};
    let terms = Terms {
        calls: 20,
        ratio: 0.5,
        witnesses: 2,
        opens_for: secs(5),
        at_most: secs(60),
        probes: 1,
        closes_after: 1,
        lease: secs(2),
    };
    let start = crate::time::now();
    let mut sent = Sent::default();
    let mut send = |millis: u64, is_witness: bool, calls: u64| {
        let sight = WindowCount { calls, failures: 0, generation: 0 };
        let snapshots =
            sent.snapshots(start + ms(millis), is_witness, vec![("b".into(), sight, terms)]);
        snapshots.first().map(|snapshot| snapshot.calls)
    };
    assert_eq!(send(0, true, 0), None, "nothing to say");
    assert_eq!(send(100, true, 5), Some(5));
    assert_eq!(send(200, true, 5), None);
    assert_eq!(send(1_100, true, 5), Some(5), "the store would forget it");
    assert_eq!(send(1_200, false, 6), Some(0), "taken back");
    assert_eq!(send(3_000, false, 7), None);
    let mut cadence = Cadence::new(start);
    cadence.on_sent(start, 0.5);
    assert_eq!(cadence.due, start + TICK);
    cadence.hurry();
    assert_eq!(cadence.due, start + ms(20));
    for pause in [100, 200, 400, 800, 1_000, 1_000] {
        cadence.on_failure(start);
        assert_eq!(cadence.due, start + ms(pause));
        cadence.hurry();
        assert_eq!(cadence.due, start + ms(pause), "a store that is away is not asked sooner");
    }
}
