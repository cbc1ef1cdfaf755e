//! The scripts against their twins in Rust, on a real server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use adieu_testkit::servers::{Options, Server};
use redis::aio::MultiplexedConnection;

use super::board::{Board, MOST_NEWS};
use super::memory::Memory;
use super::redis::{
    Answer, FORCE, PROBE, SETTLE, SYNC, Scripted, SyncAnswer, TAKE, force_args, probe_args, read,
    read_probed, read_standing, read_synced, settle_args, state_keys, sync_request,
};
use super::{Force, Forced, Probe, Probed, Report, Settled, Snapshot, Store};
use crate::breaker::{Ended, Standing, Terms};
use crate::rate::{Gcra, Shared, Wait};

async fn connect(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Returns the script with the time in its last two arguments instead of the server's.
fn at_a_given_time(script: &str) -> redis::Script {
    let replaced = script.replace("redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }");
    assert_ne!(replaced, script);
    redis::Script::new(&replaced)
}

// The same random questions at the same times, with steps of the clock of up to an hour, by replicas
// with different limits. The expiry of the key is left out: the times are not the server's.
#[tokio::test]
async fn the_rate_script_agrees_with_its_twin_in_rust() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let script = at_a_given_time(TAKE);
    let mut random = fastrand::Rng::with_seed(19);
    for round in 0..40 {
        let key = format!("round {round}");
        let limits: Vec<_> = (0..2)
            .map(|_| {
                Gcra::new(
                    random.u32(1..5_000),
                    random.u64(1_000_000..60_000_000_000),
                    random.u32(1..200),
                )
            })
            .collect();
        let mut state: Option<Shared> = None;
        let mut micros = 1_800_000_000_000_000_u64 + random.u64(0..1_000_000_000);
        for _ in 0..60 {
            micros = match random.u8(0..20) {
                0 => micros - random.u64(0..3_600_000_000),
                1 => micros + random.u64(0..3_600_000_000),
                _ => micros + random.u64(0..100_000),
            };
            let (limit, wanted) = (limits[random.usize(0..2)], random.u32(0..100));
            let now = micros * 1_000;
            let expected = limit.take_up_to(state, now, wanted);
            let (interval, tolerance) = limit.figures();
            let mut invocation = script.key(&key);
            invocation.arg(interval).arg(tolerance).arg(wanted);
            invocation.arg(micros / 1_000_000).arg(micros % 1_000_000);
            let answer: Answer = invocation.invoke_async(&mut connection).await.unwrap();
            assert_eq!(
                read(answer, now).unwrap(),
                expected,
                "round {round} at {now} after {state:?}"
            );
            // The server's own clock must not end it meanwhile.
            let _: bool =
                redis::cmd("PERSIST").arg(&key).query_async(&mut connection).await.unwrap();
            state = expected.state;
        }
    }
}

async fn one_burst_then_a_wait(store: &dyn Store) {
    let limit = Gcra::new(10, 1_000_000_000, 5);
    let first = store.take("k", limit, 3).await.unwrap();
    assert_eq!((first.granted, first.wait), (3, Wait(0)));
    let rest = store.take("k", limit, 3).await.unwrap();
    assert_eq!(rest.granted, 2);
    let Wait(wait) = rest.wait;
    assert!(wait > 0 && wait <= 100_000_000, "{wait}");
    assert_eq!(store.take("other", limit, 9).await.unwrap().granted, 5);
    tokio::time::sleep(Duration::from_nanos(wait)).await;
    assert_eq!(store.take("k", limit, 1).await.unwrap().granted, 1);
    // Nothing is limited after the whole burst has been restored.
    tokio::time::sleep(Duration::from_millis(510)).await;
    assert_eq!(store.take("k", limit, 9).await.unwrap().granted, 5);
}

#[tokio::test(start_paused = true)]
async fn memory_grants_a_burst_and_then_by_rate() {
    one_burst_then_a_wait(&Memory::new()).await;
}

#[tokio::test]
async fn redis_grants_a_burst_and_then_by_rate() {
    let server = Server::redis();
    one_burst_then_a_wait(&Scripted::new(connect(&server).await)).await;
}

#[tokio::test]
async fn the_state_in_redis_lives_until_it_means_nothing() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let store = Scripted::new(connection.clone());
    let limit = Gcra::new(1, 10_000_000_000, 6);
    assert_eq!(store.take("k", limit, 6).await.unwrap().granted, 6);
    let left: u64 = redis::cmd("PTTL").arg("k").query_async(&mut connection).await.unwrap();
    assert!((59_000..=60_000).contains(&left), "{left}");
    // A server that has lost everything grants one burst more. Scripts are loaded again.
    for command in ["FLUSHALL", "SCRIPT"] {
        let mut flush = redis::cmd(command);
        if command == "SCRIPT" {
            flush.arg("FLUSH");
        }
        let _: String = flush.query_async(&mut connection).await.unwrap();
    }
    assert_eq!(store.take("k", limit, 9).await.unwrap().granted, 6);
    assert_eq!(store.take("k", limit, 9).await.unwrap().granted, 0);
}

#[tokio::test]
async fn a_clock_of_the_server_that_is_set_back_refuses_no_longer_than_one_burst() {
    let server = Server::redis_with(Options::new().clock());
    let store = Scripted::new(connect(&server).await);
    let limit = Gcra::new(100, 1_000_000_000, 20);
    assert_eq!(store.take("k", limit, 99).await.unwrap().granted, 20);
    server.set_clock(-3_600);
    let Wait(wait) = store.take("k", limit, 1).await.unwrap().wait;
    assert!(wait <= 10_000_000, "{wait}");
    let mut granted = 0;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        granted += store.take("k", limit, 99).await.unwrap().granted;
    }
    assert!((20..=120).contains(&granted), "{granted}");
}

/// The scripts of breakers, with a time that the test sets.
struct Scripts {
    connection: MultiplexedConnection,
    service: String,
    micros: u64,
    scripts: [redis::Script; 4],
}

impl Scripts {
    async fn run<T: redis::FromRedisValue>(
        &mut self,
        script: usize,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> T {
        let mut invocation = self.scripts[script].prepare_invoke();
        keys.into_iter().for_each(|key| {
            invocation.key(key);
        });
        args.into_iter().for_each(|arg| {
            invocation.arg(arg);
        });
        invocation.arg(self.micros / 1_000_000).arg(self.micros % 1_000_000);
        invocation.invoke_async(&mut self.connection).await.unwrap()
    }
}

fn random_terms(random: &mut fastrand::Rng) -> Terms {
    Terms {
        calls: random.u32(1..30),
        ratio: f64::from(random.u32(1..=100)) / 100.0,
        witnesses: random.u32(1..4),
        opens_for: Duration::from_micros(random.u64(1..8_000_000)),
        at_most: Duration::from_micros(random.u64(8_000_000..60_000_000)),
        probes: random.u32(1..3),
        closes_after: random.u32(1..3),
        lease: Duration::from_micros(random.u64(1..5_000_000)),
    }
}

// The same random questions at the same times, by replicas with different figures, with a clock that
// is set back and forth by up to an hour.
#[tokio::test]
async fn s914_the_scripts_of_breakers_answer_as_their_twin_does() {
    let server = Server::redis_with(Options::new().args(["--save", "", "--appendonly", "no"]));
    let connection = connect(&server).await;
    let mut random = fastrand::Rng::with_seed(20);
    let (mut kinds, mut opened) = (BTreeSet::new(), 0);
    for round in 0..30 {
        let scripts = [SYNC, PROBE, SETTLE, FORCE].map(at_a_given_time);
        let micros = 1_800_000_000_000_000 + random.u64(0..1_000_000_000);
        let service = format!("round{round}");
        let mut redis = Scripts { connection: connection.clone(), service, micros, scripts };
        let mut board = Board::default();
        let terms = [random_terms(&mut random), random_terms(&mut random)];
        let breakers: [Arc<str>; 2] = ["payments".into(), "search/tenant 7 }".into()];
        let (mut epochs, mut generation) = ([0; 3], 0);
        let mut granted: Vec<(Probe, u64)> = Vec::new();
        for step in 0..120 {
            redis.micros = match random.u8(0..30) {
                0 => redis.micros - random.u64(0..3_600_000_000),
                1 => redis.micros + random.u64(0..3_600_000_000),
                2..6 => redis.micros + random.u64(0..8_000_000),
                _ => redis.micros + random.u64(0..300_000),
            };
            let (now, terms) = (redis.micros, terms[random.usize(0..2)]);
            let breaker = Arc::clone(&breakers[random.usize(0..2)]);
            let at = format!("round {round}, step {step}, {board:?}");
            match random.u8(0..10) {
                0..5 => {
                    let replica = random.usize(0..3);
                    let snapshots = (0..random.usize(0..3)).map(|_| {
                        let calls = random.u64(0..20);
                        Snapshot {
                            breaker: Arc::clone(&breakers[random.usize(0..2)]),
                            generation: generation
                                - u64::from(generation > 0 && random.u8(0..5) == 0),
                            calls,
                            failures: random.u64(0..=calls),
                            is_open: random.u8(0..4) == 0,
                            terms,
                            spread: random.f64(),
                        }
                    });
                    let report = Report {
                        snapshots: snapshots.collect(),
                        replica: format!("r{replica}").into(),
                        is_leaving: random.u8(0..20) == 0,
                        epoch: if random.u8(0..4) == 0 { 0 } else { epochs[replica] },
                        forces: (0..random.usize(0..2))
                            .map(|_| (Arc::clone(&breaker), forced(random.u64(1..90_000_000))))
                            .collect(),
                    };
                    let expected = board.sync(now, &report);
                    let (keys, args) = sync_request(&redis.service, &report);
                    let answer: SyncAnswer = redis.run(0, keys, args).await;
                    let synced = read_synced(answer).unwrap();
                    assert_eq!(synced, expected, "{report:?} in {at}");
                    epochs[replica] = synced.epoch;
                    for (_, standing) in synced.news.into_iter().flat_map(|news| news.breakers) {
                        let (Standing::Open { generation: of, .. }
                        | Standing::Closed { generation: of }) = standing;
                        generation = generation.max(of);
                        opened += usize::from(matches!(standing, Standing::Open { .. }));
                    }
                }
                5..7 => {
                    let id = format!("p{step}").into();
                    let probe = Probe { breaker, id, terms };
                    let expected = board.probe(now, &probe);
                    let keys = state_keys(&redis.service);
                    let answer: Vec<String> = redis.run(1, keys, probe_args(&probe)).await;
                    let probed = read_probed(answer).unwrap();
                    assert_eq!(probed, expected, "{probe:?} in {at}");
                    kinds.insert(match probed {
                        Probed::Granted { generation } => {
                            granted.push((probe, generation));
                            "granted"
                        }
                        Probed::Busy(_) => "busy",
                        Probed::Standing(Some(Standing::Open { .. })) => "open",
                        Probed::Standing(Some(Standing::Closed { .. })) => "closed",
                        Probed::Standing(None) => "unknown",
                    });
                }
                7..9 if !granted.is_empty() => {
                    let (probe, generation) = granted.swap_remove(random.usize(0..granted.len()));
                    let ended = [Ended::Succeeded, Ended::Failed, Ended::Neutral];
                    let ended = ended[random.usize(0..3)];
                    let settled = Settled { probe, generation, ended, spread: random.f64() };
                    let expected = board.settle(now, &settled);
                    let keys = state_keys(&redis.service);
                    let answer: Vec<String> = redis.run(2, keys, settle_args(&settled)).await;
                    assert_eq!(read_standing(&answer).unwrap(), expected, "{settled:?} in {at}");
                }
                _ => {
                    let time =
                        Duration::from_micros([0, random.u64(1..90_000_000)][random.usize(0..2)]);
                    let by = "ops  on call".to_owned();
                    let force = Force { policy: breaker, time, by };
                    board.force(now, &force);
                    let keys = state_keys(&redis.service);
                    redis.run::<()>(3, keys, force_args(&force)).await;
                }
            }
        }
    }
    let all = ["busy", "closed", "granted", "open", "unknown"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all, "the questions must meet every answer");
    assert!(opened > 30, "{opened}");
}

const TERMS: Terms = Terms {
    calls: 20,
    ratio: 0.5,
    witnesses: 2,
    opens_for: Duration::from_millis(300),
    at_most: Duration::from_secs(60),
    probes: 1,
    closes_after: 1,
    lease: Duration::from_millis(300),
};

fn report(replica: &str, epoch: u64, calls: u64, failures: u64) -> Report {
    let (breaker, generation) = ("payments".into(), u64::MAX >> 12);
    let is_open = false;
    let snapshot =
        Snapshot { breaker, generation, calls, failures, is_open, terms: TERMS, spread: 0.5 };
    let (forces, snapshots) = (Vec::new(), vec![snapshot]);
    Report { replica: replica.into(), is_leaving: false, epoch, forces, snapshots }
}

fn forced(micros: u64) -> Forced {
    Forced { left: Duration::from_micros(micros), by: "ops  on call".into() }
}

fn probe(id: &str) -> Probe {
    Probe { breaker: "payments".into(), id: id.into(), terms: TERMS }
}

/// Opens, probes and closes a breaker. `set_clock` sets the store's clock back by an hour.
async fn a_breaker_opens_and_closes(store: &dyn Store, set_clock: impl Fn()) {
    let sync = async |report: &Report| store.sync("checkout", report).await.unwrap();
    let healthy = sync(&report("a", 0, 100, 2)).await;
    assert_eq!((healthy.replicas, healthy.news.is_none()), (1, healthy.epoch == 0));
    let one_sick = sync(&report("b", 0, 200, 200)).await;
    assert_eq!((one_sick.epoch, one_sick.replicas), (0, 2), "one witness of two that had calls");
    let both_sick = sync(&report("a", 0, 100, 60)).await;
    let [(breaker, Standing::Open { generation, left, reopenings: 0 })] =
        &both_sick.news.unwrap().breakers[..]
    else {
        panic!("not open")
    };
    assert_eq!(breaker, "payments");
    assert!(*left <= TERMS.opens_for && *left > TERMS.opens_for / 2, "{left:?}");
    let early = store.probe("checkout", &probe("p0")).await.unwrap();
    assert!(matches!(early, Probed::Standing(Some(Standing::Open { .. }))), "{early:?}");
    // The break lasts no longer than declared.
    set_clock();
    store.probe("checkout", &probe("p0")).await.unwrap();
    tokio::time::sleep(TERMS.opens_for).await;
    let granted = store.probe("checkout", &probe("p1")).await.unwrap();
    assert_eq!(granted, Probed::Granted { generation: *generation });
    let busy = store.probe("checkout", &probe("p2")).await.unwrap();
    let Probed::Busy(wait) = busy else { panic!("{busy:?}") };
    // Its holder has died.
    tokio::time::sleep(wait + Duration::from_millis(1)).await;
    let granted = store.probe("checkout", &probe("p2")).await.unwrap();
    assert_eq!(granted, Probed::Granted { generation: *generation });
    let settled =
        |id, ended| Settled { probe: probe(id), generation: *generation, ended, spread: 0.5 };
    let ignored = store.settle("checkout", &settled("p1", Ended::Succeeded)).await.unwrap();
    assert!(matches!(ignored, Some(Standing::Open { .. })), "its lease has ended: {ignored:?}");
    let closed = store.settle("checkout", &settled("p2", Ended::Succeeded)).await.unwrap();
    let Some(Standing::Closed { generation: after }) = closed else { panic!("{closed:?}") };
    assert!(after > *generation);
    let news = sync(&report("a", both_sick.epoch, 0, 0)).await;
    assert!(news.epoch > both_sick.epoch && news.news.is_some());
    let stale = Report { is_leaving: true, ..report("b", news.epoch, 100, 100) };
    let stale = Report {
        snapshots: vec![Snapshot { generation: *generation, ..stale.snapshots[0].clone() }],
        ..stale
    };
    let left = sync(&stale).await;
    assert_eq!((left.replicas, left.news), (1, None), "a snapshot of before the breaker closed");
}

#[tokio::test(start_paused = true)]
async fn s911_a_breaker_in_memory_opens_and_closes() {
    a_breaker_opens_and_closes(&Memory::new(), || {}).await;
}

#[tokio::test]
async fn s911_a_breaker_in_redis_opens_and_closes() {
    let server = Server::redis();
    a_breaker_opens_and_closes(&Scripted::new(connect(&server).await), || {}).await;
}

#[tokio::test]
async fn s911_a_breaker_opens_and_closes_in_a_redis_cluster() {
    let server = Server::redis_cluster();
    a_breaker_opens_and_closes(&Scripted::new(connect(&server).await), || {}).await;
}

#[tokio::test]
async fn s919_a_break_lasts_no_longer_if_the_clock_of_the_server_is_set_back() {
    let server = Server::redis_with(Options::new().clock());
    let store = Scripted::new(connect(&server).await);
    a_breaker_opens_and_closes(&store, || server.set_clock(-3_600)).await;
}

#[tokio::test]
async fn s1557_values_that_no_script_has_written_are_replaced() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let store = Scripted::new(connection.clone());
    let key = |what: &str| format!("adieu:{{checkout}}:r2:{what}");
    for garbage in ["", "garbage", "open 1", "open 1 2 3 4", "closed 1 x", "forced 1", "1 2 x"] {
        for name in ["k".to_owned(), key("epoch")] {
            let () = redis::cmd("SET")
                .arg(name)
                .arg(garbage)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
        for (hash, field) in
            [("state", "b:payments"), ("state", "f:payments"), ("b:payments", "other")]
        {
            let mut set = redis::cmd("HSET");
            let () = set
                .arg(key(hash))
                .arg(field)
                .arg(garbage)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
        one_burst_then_a_wait(&store).await;
        a_breaker_opens_and_closes(&store, || {}).await;
        store.force("checkout", &force(Duration::from_secs(1))).await.unwrap();
        let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    }
}

fn force(time: Duration) -> Force {
    Force { policy: "payments".into(), time, by: "ops".into() }
}

/// Two witnesses open the breaker. Returns its generation.
async fn opens(store: &dyn Store) -> u64 {
    let mut news = None;
    for replica in ["a", "b"] {
        news = store.sync("checkout", &report(replica, 1, 20, 20)).await.unwrap().news;
    }
    match news.unwrap().breakers[..] {
        [(_, Standing::Open { generation, .. })] => generation,
        ref other => panic!("{other:?}"),
    }
}

/// A breaker that the fleet has closed opens again after the clock was set.
async fn a_generation_rises(store: &dyn Store, set_clock: impl Fn()) {
    let first = opens(store).await;
    tokio::time::sleep(TERMS.opens_for * 2).await;
    let granted = store.probe("checkout", &probe("p")).await.unwrap();
    assert_eq!(granted, Probed::Granted { generation: first });
    let (ended, spread) = (Ended::Succeeded, 0.5);
    let settled = Settled { probe: probe("p"), generation: first, ended, spread };
    let closed = store.settle("checkout", &settled).await.unwrap().unwrap();
    set_clock();
    let known = store.sync("checkout", &report("c", 1, 0, 0)).await.unwrap().news.unwrap();
    assert_eq!(known.breakers, [("payments".to_owned(), closed)], "it is still known");
    assert!(opens(store).await > closed.generation());
}

#[tokio::test(start_paused = true)]
async fn s1651_generations_in_memory_rise() {
    a_generation_rises(&Memory::new(), || {}).await;
}

#[tokio::test]
async fn s1651_generations_rise_if_the_clock_of_the_server_is_set_back() {
    let server = Server::redis_with(Options::new().clock());
    let store = Scripted::new(connect(&server).await);
    a_generation_rises(&store, || server.set_clock(-3_600)).await;
}

#[tokio::test]
async fn s1663_a_clock_of_the_server_that_is_set_forward_grants_one_burst_more() {
    let server = Server::redis_with(Options::new().clock());
    let store = Scripted::new(connect(&server).await);
    let limit = Gcra::new(10, 1_000_000_000, 20);
    assert_eq!(store.take("k", limit, 99).await.unwrap().granted, 20);
    assert!(store.take("k", limit, 99).await.unwrap().granted < 5);
    server.set_clock(3_600);
    assert_eq!(store.take("k", limit, 99).await.unwrap().granted, 20);
    assert!(store.take("k", limit, 99).await.unwrap().granted < 5);
    // An open breaker waits for probes, and a force ends.
    let generation = opens(&store).await;
    store.force("checkout", &force(Duration::from_secs(600))).await.unwrap();
    server.set_clock(7_200);
    let granted = store.probe("checkout", &probe("p")).await.unwrap();
    assert_eq!(granted, Probed::Granted { generation });
    let news = store.sync("checkout", &report("c", 1, 0, 0)).await.unwrap().news.unwrap();
    assert_eq!(news.forces, []);
    // A replica that knows of the force reports it, and it lasts as long as was declared.
    let forces = vec![("payments".into(), forced(590_000_000))];
    let reported = Report { forces, ..report("a", 1, 0, 0) };
    store.sync("checkout", &reported).await.unwrap();
    let news = store.sync("checkout", &report("c", 1, 0, 0)).await.unwrap().news.unwrap();
    let [(_, Forced { left, by })] = &news.forces[..] else { panic!("{news:?}") };
    assert!(*left > Duration::from_secs(580) && *left <= Duration::from_secs(590), "{left:?}");
    assert_eq!(by, "ops  on call");
}

// Each key of adieu has a value of another type.
#[tokio::test]
async fn s1557_values_of_another_type_are_replaced() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let store = Scripted::new(connection.clone());
    let keys = ["epoch", "state", "changes", "forgotten", "who", "b:payments"];
    let keys: Vec<_> = keys.iter().map(|what| format!("adieu:{{checkout}}:r2:{what}")).collect();
    for set in ["SET {} text", "RPUSH {} item", "HSET {} field value", "ZADD {} 1 member"] {
        // One at a time, then all.
        for at in 0..=keys.len() {
            let chosen = if at == keys.len() { &keys[..] } else { &keys[at..=at] };
            for key in chosen.iter().map(|key| &**key).chain(["k"]) {
                let words: Vec<_> = set.split(' ').collect();
                let mut command = redis::cmd(words[0]);
                command.arg(key).arg(&words[2..]);
                let () = command.query_async(&mut connection).await.unwrap();
            }
            let limit = Gcra::new(10, 1_000_000_000, 5);
            assert_eq!(store.take("k", limit, 9).await.unwrap().granted, 5, "{set} {chosen:?}");
            store.force("checkout", &force(Duration::from_secs(1))).await.unwrap();
            opens(&store).await;
            store.probe("checkout", &probe("p")).await.unwrap();
            let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
        }
    }
}

/// Returns a report about so many breakers, all of which have failed.
fn report_of_keys(replica: &str, epoch: u64, keys: std::ops::Range<usize>) -> Report {
    let Report { snapshots, .. } = report(replica, epoch, 20, 20);
    let snapshots = keys
        .map(|key| Snapshot { breaker: format!("payments/{key}").into(), ..snapshots[0].clone() });
    Report { snapshots: snapshots.collect(), ..report(replica, epoch, 0, 0) }
}

/// Opens so many breakers; then one that the other replica has read everything.
async fn answers_have_what_has_changed(store: &dyn Store, keys: usize) {
    let sync = async |report: &Report| store.sync("checkout", report).await.unwrap();
    for first in (0..keys).step_by(50) {
        for replica in ["a", "b"] {
            sync(&report_of_keys(replica, u64::MAX >> 12, first..(first + 50).min(keys))).await;
        }
    }
    let (mut epoch, mut read, mut answers) = (0, BTreeSet::new(), 0);
    loop {
        let synced = sync(&report_of_keys("c", epoch, 0..0)).await;
        let news = synced.news.unwrap();
        assert_eq!(news.is_from_start, answers == 0);
        assert!(news.breakers.len() <= MOST_NEWS, "{}", news.breakers.len());
        (epoch, answers) = (synced.epoch, answers + 1);
        read.extend(news.breakers.into_iter().map(|(breaker, _)| breaker));
        if !news.has_more {
            break;
        }
    }
    assert_eq!((read.len(), answers), (keys, keys.div_ceil(MOST_NEWS)));
    assert_eq!(sync(&report_of_keys("c", epoch, 0..0)).await.news, None);
    // One more.
    for replica in ["a", "b"] {
        sync(&report_of_keys(replica, u64::MAX >> 12, keys..keys + 1)).await;
    }
    let synced = sync(&report_of_keys("c", epoch, 0..0)).await;
    let news = synced.news.unwrap();
    assert_eq!((news.breakers.len(), news.is_from_start, news.has_more), (1, false, false));
}

#[tokio::test]
async fn s1780_an_answer_has_what_has_changed_and_a_limited_number_of_breakers() {
    answers_have_what_has_changed(&Memory::new(), 1_000).await;
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let store = Scripted::new(connection.clone());
    for keys in [100, 1_000, 4_000] {
        let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
        answers_have_what_has_changed(&store, keys).await;
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        let (_, scripts) = stats.split_once("cmdstat_evalsha:").unwrap();
        let (_, each) = scripts.split_once("usec_per_call=").unwrap();
        let each: f64 = each.split(',').next().unwrap().parse().unwrap();
        assert!(each < 5_000.0, "{keys} open keys: {each} us for a script");
    }
}
