//! The cost of acquiring and releasing a lock, compared with the bare client that sends the same
//! commands. Times in microseconds for each pair. The servers are real, and on this machine.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adieu::Deadline;
use adieu::fleet::etcd_client::{self, Compare, CompareOp, PutOptions, Txn, TxnOp};
use adieu::fleet::{Attempt, Etcd, Key, Lock, LockBackend, Owner, Redis};
use adieu_benches::{Claim, main as bench};
use adieu_testkit::servers::Server;

const REDIS: &str = "ADIEU_BENCH_REDIS";
const ETCD: &str = "ADIEU_BENCH_ETCD";

fn main() {
    if std::env::var(REDIS).is_err() {
        // Every case is a separate process, and all use the same servers.
        let (redis, etcd) = (Server::redis(), Server::etcd());
        let me = std::env::current_exe().expect("this program");
        let status = Command::new(me)
            .args(std::env::args().skip(1))
            .env(REDIS, format!("redis://{}/", redis.address()))
            .env(ETCD, format!("http://{}", etcd.address()))
            .status();
        assert!(status.expect("a new process").success());
        return;
    }
    bench(
        "locks",
        11,
        &[
            ("redis: bare client", || run(bare_redis())),
            ("redis: backend", || run(async { backend(Arc::new(redis().await), 3_000).await })),
            ("redis: adieu", || run(async { lease(Arc::new(redis().await), 3_000).await })),
            ("etcd: bare client", || run(bare_etcd())),
            ("etcd: backend", || run(async { backend(Arc::new(etcd().await), 300).await })),
            ("etcd: adieu", || run(async { lease(Arc::new(etcd().await), 300).await })),
        ],
        &[
            Claim::ratio(
                "acquire and release on Redis, against the bare client",
                "redis: adieu",
                "redis: bare client",
                1.3,
            ),
            Claim::ratio(
                "acquire and release on etcd, against the bare client",
                "etcd: adieu",
                "etcd: bare client",
                1.3,
            ),
            Claim::ratio(
                "the backend alone on Redis, without a lease that is renewed",
                "redis: backend",
                "redis: bare client",
                f64::INFINITY,
            ),
            Claim::ratio(
                "the backend alone on etcd, without a lease that is renewed",
                "etcd: backend",
                "etcd: bare client",
                f64::INFINITY,
            ),
        ],
    );
}

fn run(measured: impl Future<Output = f64>) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measured)
}

fn per_pair(began: Instant, pairs: u32) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / f64::from(pairs)
}

async fn redis() -> Redis {
    let locks = Redis::connect(&std::env::var(REDIS).expect("set")).await.expect("a server");
    without_disk().await;
    locks
}

/// Turns persistence off, because the cost of the disk would hide the difference.
async fn without_disk() {
    let client = redis::Client::open(std::env::var(REDIS).expect("set")).expect("an address");
    let mut connection = client.get_connection_manager().await.expect("a server");
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "appendonly", "no"])
        .exec_async(&mut connection)
        .await
        .expect("it may be set");
}

async fn etcd() -> Etcd {
    Etcd::connect(&[std::env::var(ETCD).expect("set")]).await.expect("a server")
}

async fn bare_redis() -> f64 {
    without_disk().await;
    let client = redis::Client::open(std::env::var(REDIS).expect("set")).expect("an address");
    let mut connection = client.get_connection_manager().await.expect("a server");
    let acquire =
        redis::Script::new(include_str!("../crates/adieu-fleet/src/backend/redis/acquire.lua"));
    let release =
        redis::Script::new(include_str!("../crates/adieu-fleet/src/backend/redis/release.lua"));
    let (pairs, mut began) = (3_000, Instant::now());
    for pair in 0..pairs + 100 {
        if pair == 100 {
            began = Instant::now();
        }
        let (_, fence, _): (i64, String, i64) = acquire
            .key("adieu:{bare}:lock")
            .key("adieu:{bare}:fence")
            .arg("me")
            .arg(30_000)
            .invoke_async(&mut connection)
            .await
            .expect("granted");
        let released: i64 = release
            .key("adieu:{bare}:lock")
            .arg(format!("{fence} me"))
            .invoke_async(&mut connection)
            .await
            .expect("released");
        assert_eq!(released, 1);
    }
    per_pair(began, pairs)
}

async fn bare_etcd() -> f64 {
    let endpoints = [std::env::var(ETCD).expect("set")];
    let mut client = etcd_client::Client::connect(endpoints, None).await.expect("a server");
    let (pairs, mut began) = (300, Instant::now());
    for pair in 0..pairs + 20 {
        if pair == 20 {
            began = Instant::now();
        }
        let lease = client.lease_grant(30, None).await.expect("granted").id();
        let free = Compare::create_revision("adieu/lock/bare", CompareOp::Equal, 0);
        let put = PutOptions::new().with_lease(lease);
        let txn = Txn::new()
            .when([free])
            .and_then([TxnOp::put("adieu/lock/bare", "me", Some(put))])
            .or_else([TxnOp::get("adieu/lock/bare", None)]);
        let answer = client.txn(txn).await.expect("granted");
        let revision = answer.header().expect("a header").revision();
        let txn = Txn::new()
            .when([
                Compare::create_revision("adieu/lock/bare", CompareOp::Equal, revision),
                Compare::value("adieu/lock/bare", CompareOp::Equal, "me"),
            ])
            .and_then([TxnOp::delete("adieu/lock/bare", None)]);
        assert!(client.txn(txn).await.expect("released").succeeded());
        client.lease_revoke(lease).await.expect("revoked");
    }
    per_pair(began, pairs)
}

/// The commands alone, through the interface of backends.
async fn backend(locks: Arc<dyn LockBackend>, pairs: u32) -> f64 {
    let (key, owner) = (Key::new("backend").expect("a key"), Owner::new("me").expect("a name"));
    let mut began = Instant::now();
    for pair in 0..pairs + 20 {
        if pair == 20 {
            began = Instant::now();
        }
        let attempt = locks.try_acquire(&key, &owner, Duration::from_secs(30)).await;
        let Ok(Attempt::Acquired(claim)) = attempt else { panic!("{attempt:?}") };
        assert!(locks.release(&claim).await.expect("an answer").is_held());
    }
    per_pair(began, pairs)
}

/// A lease that is renewed, as applications use it.
async fn lease(locks: Arc<dyn LockBackend>, pairs: u32) -> f64 {
    let owner = Owner::new("me").expect("a name");
    let lock = Lock::new(locks, "lease", &owner).expect("a lock");
    let mut began = Instant::now();
    for pair in 0..pairs + 20 {
        if pair == 20 {
            began = Instant::now();
        }
        let lease = lock.try_acquire().await.expect("granted");
        lease.release(Deadline::after(Duration::from_secs(5))).await.expect("released");
    }
    per_pair(began, pairs)
}
