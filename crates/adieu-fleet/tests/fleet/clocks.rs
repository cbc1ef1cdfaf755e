//! Servers whose clocks are set, and a Redis replica whose clock is behind.

use std::time::{Duration, Instant};

use adieu_fleet::{Attempt, Claim, ClaimStatus, LockBackend, Postgres, PostgresSession, Redis};
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::{Options, Server};

use crate::support::{granted, key, owner, postgres_config, redis_url};

const TTL: Duration = Duration::from_secs(60);
const HOUR: i64 = 60 * 60;

async fn attempt(locks: &impl LockBackend, replica: &str) -> Attempt {
    locks.try_acquire(&key("job"), &owner(replica), TTL).await.unwrap()
}

async fn acquire(locks: &impl LockBackend, replica: &str) -> Claim {
    granted(attempt(locks, replica).await)
}

/// Checks that a lease ends by the server's clock.
async fn ends_by_server_clock(server: &Server, locks: &impl LockBackend) {
    let key = key("job");
    let first = acquire(locks, "one").await;
    assert!(matches!(attempt(locks, "two").await, Attempt::Held(_)));
    server.set_clock(HOUR);
    assert_eq!(locks.query(&key).await.unwrap(), None, "it has ended an hour early");
    let second = acquire(locks, "two").await;
    assert!(second.fence > first.fence);
    assert_eq!(locks.renew(&first, TTL).await.unwrap(), ClaimStatus::Lost, "its holder notices");
    server.set_clock(0);
    let holder = locks.query(&key).await.unwrap().unwrap();
    assert!(holder.remaining > Duration::from_secs(59 * 60), "an hour too long: {holder:?}");
    assert_eq!(locks.renew(&second, TTL).await.unwrap(), ClaimStatus::Held);
    let holder = locks.query(&key).await.unwrap().unwrap();
    assert!(holder.remaining <= TTL, "renewed: {holder:?}");
    assert_eq!(locks.release(&second).await.unwrap(), ClaimStatus::Held);
    server.set_clock(-HOUR);
    assert!(acquire(locks, "three").await.fence > second.fence, "while the clock is behind");
}

#[tokio::test]
async fn s286_a_clock_that_is_set_moves_the_end_of_a_lease_in_redis() {
    let server = Server::redis_with(Options::new().clock());
    let redis = Redis::connect(&redis_url(&server)).await.unwrap();
    ends_by_server_clock(&server, &redis).await;
}

#[tokio::test]
async fn s286_a_clock_that_is_set_moves_the_end_of_a_lease_in_rows_of_postgres() {
    let server = Server::postgres_with(Options::new().clock());
    let postgres = Postgres::connect(&postgres_config(server.port())).await.unwrap();
    ends_by_server_clock(&server, &postgres).await;
}

#[tokio::test]
async fn s286_a_clock_that_is_set_does_not_end_a_session_of_postgres() {
    let server = Server::postgres_with(Options::new().clock());
    let (one, two) = (
        PostgresSession::connect(&postgres_config(server.port())).await.unwrap(),
        PostgresSession::connect(&postgres_config(server.port())).await.unwrap(),
    );
    let claim = acquire(&one, "one").await;
    for offset in [HOUR, -HOUR, 0] {
        server.set_clock(offset);
        assert!(matches!(attempt(&two, "two").await, Attempt::Held(_)), "{offset}");
        assert_eq!(one.renew(&claim, TTL).await.unwrap(), ClaimStatus::Held, "{offset}");
    }
}

/// Executes a command on a Redis server.
async fn execute(server: &Server, words: &[&str]) -> String {
    let client = redis::Client::open(redis_url(server)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    let response: Option<String> =
        command.arg(&words[1..]).query_async(&mut connection).await.unwrap();
    response.unwrap_or_default()
}

/// A Redis server, and a replica behind a proxy whose clock is an hour behind.
struct Pair {
    primary: Server,
    replica: Server,
    between: Proxy,
}

impl Pair {
    async fn new() -> Self {
        let primary = Server::redis();
        let between = Proxy::new(primary.address()).await;
        let of = format!("127.0.0.1 {}", between.port());
        let options = Options::new().args(["--replicaof", &of]).clock();
        let replica = Server::redis_with(options);
        replica.set_clock(-HOUR);
        Self { primary, replica, between }
    }

    async fn connect(server: &Server) -> Redis {
        Redis::connect(&redis_url(server)).await.unwrap()
    }

    /// Waits until the replica has this fence.
    async fn replicated(&self, claim: &Claim) {
        let give_up = Instant::now() + Duration::from_secs(30);
        let fence = claim.fence.to_string();
        while execute(&self.replica, &["GET", "adieu:{job}:fence"]).await != fence {
            assert!(Instant::now() < give_up, "nothing is replicated");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the primary, and makes the replica take over.
    async fn fail_over(&mut self) -> Redis {
        self.primary.kill();
        execute(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
        Self::connect(&self.replica).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s287_a_redis_replica_with_every_write_grants_higher_fences_at_any_clock() {
    let mut pair = Pair::new().await;
    let redis = Pair::connect(&pair.primary).await;
    let claim = acquire(&redis, "one").await;
    pair.replicated(&claim).await;
    let redis = pair.fail_over().await;
    assert_eq!(redis.release(&claim).await.unwrap(), ClaimStatus::Held, "it is held there as well");
    assert!(acquire(&redis, "two").await.fence > claim.fence);
}

// Not a promise: this demonstrates N16 on real servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_a_redis_replica_that_lacks_writes_and_whose_clock_is_behind_grants_lower_fences() {
    let mut pair = Pair::new().await;
    let redis = Pair::connect(&pair.primary).await;
    let known = acquire(&redis, "one").await;
    pair.replicated(&known).await;
    pair.between.cut();
    assert!(redis.release(&known).await.unwrap().is_held());
    let unknown = acquire(&redis, "two").await;
    let redis = pair.fail_over().await;
    assert!(redis.release(&known).await.unwrap().is_held(), "it has not received the release");
    let next = acquire(&redis, "three").await;
    assert!(next.fence > known.fence && next.fence < unknown.fence, "{next:?} {unknown:?}");
}
