//! The scripts against their twins in Rust, on a real server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use adieu_testkit::servers::{Options, Server};
use redis::aio::MultiplexedConnection;

use super::Store;
use super::memory::Memory;
use super::redis::{Answer, Redis, TAKE, read};
use crate::rate::{Gcra, Shared, Wait};

async fn connect(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The script with the time in its arguments instead of the server's.
fn at_a_given_time() -> redis::Script {
    let replaced = TAKE.replace("redis.call('TIME')", "{ ARGV[4], ARGV[5] }");
    assert_ne!(replaced, TAKE);
    redis::Script::new(&replaced)
}

// The same random questions at the same times, with steps of the clock of up to an hour, by replicas
// with different limits. The expiry of the key is left out: the times are not the server's.
#[tokio::test]
async fn the_script_takes_what_its_twin_takes() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let script = at_a_given_time();
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
            let (limit, wanted) = (&limits[random.usize(0..2)], random.u32(1..100));
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

async fn one_burst_then_a_wait(store: &impl Store) {
    let limit = Gcra::new(10, 1_000_000_000, 5);
    let first = store.take("k", &limit, 3).await.unwrap();
    assert_eq!((first.granted, first.wait), (3, Wait(0)));
    let rest = store.take("k", &limit, 3).await.unwrap();
    assert_eq!(rest.granted, 2);
    let Wait(wait) = rest.wait;
    assert!(wait > 0 && wait <= 100_000_000, "{wait}");
    assert_eq!(store.take("other", &limit, 9).await.unwrap().granted, 5);
    tokio::time::sleep(Duration::from_nanos(wait)).await;
    assert_eq!(store.take("k", &limit, 1).await.unwrap().granted, 1);
    // Nothing is limited any longer after the whole burst has been restored.
    tokio::time::sleep(Duration::from_millis(510)).await;
    assert_eq!(store.take("k", &limit, 9).await.unwrap().granted, 5);
}

#[tokio::test(start_paused = true)]
async fn memory_grants_a_burst_and_then_by_rate() {
    one_burst_then_a_wait(&Memory::new()).await;
}

#[tokio::test]
async fn redis_grants_a_burst_and_then_by_rate() {
    let server = Server::redis();
    one_burst_then_a_wait(&Redis::new(connect(&server).await)).await;
}

#[tokio::test]
async fn the_state_in_redis_lives_until_it_means_nothing() {
    let server = Server::redis();
    let mut connection = connect(&server).await;
    let store = Redis::new(connection.clone());
    let limit = Gcra::new(1, 10_000_000_000, 6);
    assert_eq!(store.take("k", &limit, 6).await.unwrap().granted, 6);
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
    assert_eq!(store.take("k", &limit, 9).await.unwrap().granted, 6);
    assert_eq!(store.take("k", &limit, 9).await.unwrap().granted, 0);
}

#[tokio::test]
async fn a_clock_of_the_server_that_is_set_back_refuses_no_longer_than_one_burst() {
    let server = Server::redis_with(Options::new().clock());
    let store = Redis::new(connect(&server).await);
    let limit = Gcra::new(100, 1_000_000_000, 20);
    assert_eq!(store.take("k", &limit, 99).await.unwrap().granted, 20);
    server.set_clock(-3_600);
    let Wait(wait) = store.take("k", &limit, 1).await.unwrap().wait;
    assert!(wait <= 10_000_000, "{wait}");
    let mut granted = 0;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        granted += store.take("k", &limit, 99).await.unwrap().granted;
    }
    assert!((20..=120).contains(&granted), "{granted}");
}
