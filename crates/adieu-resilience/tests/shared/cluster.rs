//! A Redis Cluster of three nodes.

use std::time::Duration;

use adieu_core::{Config, Shutdown};
use adieu_resilience::{Breaker, BreakerState, Policies, Policy, Rate, Redis};
use adieu_testkit::servers::Server;
use redis::cluster::ClusterClient;
use tokio::time::{Instant, sleep};

use crate::outages::{connect, until};

/// How many rate limits there are, so that every node has some of them.
const LIMITS: usize = 12;

struct Replica {
    policies: Policies,
    _shutdown: Shutdown,
}

impl Replica {
    async fn start(servers: &[Server]) -> Self {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let limits = (0..LIMITS).map(|at| {
            let rate = Rate::per_second(100).burst(10);
            Policy::new(format!("limit-{at}")).rate(rate).start(&shutdown).unwrap()
        });
        let breaker = Breaker::at(0.5).of(20).opens_for(Duration::from_millis(500));
        let breaker = Policy::new("breaker").breaker(breaker).start(&shutdown).unwrap();
        let policies: Policies = limits.chain([breaker]).collect();
        let nodes = servers.iter().map(|node| format!("redis://127.0.0.1:{}/", node.port()));
        let client = ClusterClient::new(nodes).unwrap();
        let connection = client.get_async_connection().await.unwrap();
        let policies = policies.shared(Redis::new(connection), "checkout").unwrap();
        shutdown.mark_started();
        Self { policies, _shutdown: shutdown }
    }

    fn is_away(&self) -> bool {
        self.policies.store().unwrap().is_away
    }

    fn is_open(&self) -> bool {
        let status = self.policies.get("breaker").unwrap().status();
        status.breaker != Some(BreakerState::Closed)
    }

    async fn call(&self, policy: &str, is_well: bool) -> bool {
        let policy = self.policies.get(policy).unwrap();
        policy.call(async |_| if is_well { Ok(()) } else { Err(()) }).await.is_ok()
    }
}

/// Calls every limit through all replicas for a second. Returns how many calls were made and admitted,
/// and how many took longer than 20 ms.
async fn load(replicas: &[Replica]) -> (usize, usize, usize) {
    let (began, mut made, mut admitted, mut slow) = (Instant::now(), 0, 0, 0);
    while began.elapsed() < Duration::from_secs(1) {
        for replica in replicas {
            for at in 0..LIMITS {
                let called = Instant::now();
                admitted += usize::from(replica.call(&format!("limit-{at}"), true).await);
                slow += usize::from(called.elapsed() > Duration::from_millis(20));
                made += 1;
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    (made, admitted, slow)
}

/// A fifth of what the limits allow, or all calls, if a busy machine makes fewer.
fn is_enough(made: usize, admitted: usize) -> bool {
    admitted >= made.min(LIMITS * 20)
}

#[tokio::test]
async fn s1237_a_cluster_of_three_nodes_shares_limits_and_breakers() {
    let servers = Server::redis_cluster_of(3);
    let replicas = [Replica::start(&servers).await, Replica::start(&servers).await];
    let both = async |what: &str, is_so: &dyn Fn(&Replica) -> bool| {
        until(what, || replicas.iter().all(is_so)).await;
    };
    both("both are seen", &|it| it.policies.store().unwrap().replicas == 2).await;

    let began = Instant::now();
    let (made, admitted, slow) = load(&replicas).await;
    let most = LIMITS as f64 * (100.0 * (began.elapsed().as_secs_f64() + 0.1) + 10.0);
    println!("{admitted} of {made} calls admitted, at most {most:.0}; {slow} slow");
    let alone: u64 = replicas.iter().map(|it| it.policies.store().unwrap().decided_alone).sum();
    assert!(admitted as f64 <= most + alone as f64, "{admitted} {most} {alone}");
    assert!(is_enough(made, admitted), "{admitted} of {made}");
    // Each node has some of the limits.
    for server in &servers {
        let mut connection = connect(server).await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        println!("{keys:?}");
        let evals: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        assert!(evals.contains("cmdstat_evalsha"), "{evals}");
    }

    let trip = async |generation: &str| {
        for replica in &replicas {
            for _ in 0..20 {
                replica.call("breaker", false).await;
            }
        }
        both(generation, &Replica::is_open).await;
        // The break ends, and one probe closes the breaker of both.
        until("one probe succeeds", || !replicas[0].is_away()).await;
        while !replicas[0].call("breaker", true).await {
            sleep(Duration::from_millis(20)).await;
        }
        both("closed", &|it| !it.is_open()).await;
    };
    trip("open").await;
    for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"]] {
        for server in &servers {
            let mut flush = redis::cmd(command[0]);
            let mut connection = connect(server).await;
            flush.arg(command[1]).query_async::<String>(&mut connection).await.unwrap();
        }
        until("back", || replicas.iter().all(|it| !it.is_away())).await;
        let (made, admitted, _) = load(&replicas).await;
        assert!(is_enough(made, admitted), "{command:?}: {admitted} of {made}");
        trip(command[0]).await;
    }
}

#[tokio::test]
async fn s1238_a_cluster_with_a_node_that_does_not_answer_is_away_until_it_does() {
    let mut servers = Server::redis_cluster_of(3);
    let replica = [Replica::start(&servers).await];
    until("answers", || replica[0].policies.store().unwrap().replicas == 1).await;
    load(&replica).await;
    // Not the node of the breakers: reports are still answered.
    let mut of_breakers = None;
    for (at, server) in servers.iter().enumerate() {
        let mut connection = connect(server).await;
        let mut keys = redis::cmd("KEYS");
        keys.arg("adieu:{checkout}:r2:who");
        let keys: Vec<String> = keys.query_async(&mut connection).await.unwrap();
        of_breakers = of_breakers.or((!keys.is_empty()).then_some(at));
    }
    let victim = (of_breakers.unwrap() + 1) % 3;
    servers[victim].kill();
    // Calls find out.
    let waiting = Instant::now();
    while !replica[0].is_away() {
        load(&replica).await;
        assert!(waiting.elapsed() < Duration::from_secs(30), "the store is not away");
    }
    let before = metric(&replica[0], "adieu_resilience_store_away_total");
    let (made, admitted, slow) = load(&replica).await;
    let more = load(&replica).await;
    println!("{admitted} of {made} calls admitted, {slow} slow; {more:?}");
    assert!((slow + more.2) * 20 < made + more.0, "{slow} of {made}");
    // It stays away, although the node of the breakers answers every report.
    assert_eq!(metric(&replica[0], "adieu_resilience_store_away_total"), before);
    assert!(replica[0].is_away());
    servers[victim].start();
    until("back", || !replica[0].is_away()).await;
}

fn metric(replica: &Replica, name: &str) -> u64 {
    let (_, page) = adieu_core::adapter::pages(&replica._shutdown).remove(0);
    let mut metrics = adieu_core::adapter::Metrics::default();
    page.metrics(&mut metrics);
    let text = metrics.to_string();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
