//! A Redis that is killed, suspended, slow, cut off, emptied, or replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adieu_core::{Config, Reason, Shutdown};
use adieu_resilience::{Policies, Policy, Rate, Redis, WithoutStore};
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::Server;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

struct Setup {
    server: Server,
    proxy: Proxy,
    policies: Policies,
    policy: Policy,
    _shutdown: Shutdown,
}

async fn setup(without_store: WithoutStore) -> Setup {
    let server = Server::redis();
    let proxy = Proxy::new(server.address()).await;
    let (policies, policy, shutdown) = share(proxy.port(), without_store).await;
    let setup = Setup { server, proxy, policies, policy, _shutdown: shutdown };
    setup.until_away(false).await;
    setup
}

async fn share(port: u16, without_store: WithoutStore) -> (Policies, Policy, Shutdown) {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let rate = Rate::per_second(200).burst(20).without_store(without_store);
    let policy = Policy::new("p").rate(rate).start(&shutdown).unwrap();
    let policies: Policies = [policy.clone()].into_iter().collect();
    let redis = Redis::connect(&format!("redis://127.0.0.1:{port}/")).await.unwrap();
    let policies = policies.shared(redis, "checkout").unwrap();
    shutdown.mark_started();
    (policies, policy, shutdown)
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), waiting).await.expect(what);
}

impl Setup {
    fn is_away(&self) -> bool {
        self.policies.store().unwrap().is_away
    }

    async fn until_away(&self, wanted: bool) {
        until("away or back", || self.is_away() == wanted).await;
    }

    /// Calls for two seconds; returns how many calls were made, how many were admitted, and how many
    /// took longer than 20 ms.
    async fn load(&self) -> (u32, u32, u32) {
        let (began, mut made, mut admitted, mut slow) = (Instant::now(), 0, 0, 0);
        while began.elapsed() < Duration::from_secs(2) {
            let called = Instant::now();
            admitted += u32::from(self.policy.call(async |_| Ok::<_, ()>(())).await.is_ok());
            slow += u32::from(called.elapsed() > Duration::from_millis(20));
            made += 1;
            sleep(Duration::from_millis(1)).await;
        }
        (made, admitted, slow)
    }

    /// The outage has begun. Calls do not wait, and the rate is that of one replica: all of it.
    async fn check_outage(&self, what: &str) {
        let (made, admitted, slow) = self.load().await;
        println!("{what}: {made} calls, {admitted} admitted, {slow} took longer than 20 ms");
        assert!(self.is_away(), "{what}");
        // If each call waited for 25 ms, all would be slow.
        assert!(slow * 4 < made, "{what}: {slow} of {made}");
        assert!(admitted <= 200 * 2 + 20 + 40 + made / 20, "{what}: {admitted}");
    }

    async fn check_recovery(&self, what: &str) {
        self.until_away(false).await;
        let before = self.policies.store().unwrap().decided_alone;
        let (made, admitted, _) = self.load().await;
        let alone = self.policies.store().unwrap().decided_alone - before;
        println!("{what} over: {made} calls, {admitted} admitted, {alone} decided alone");
        assert!(admitted > 0 && alone < u64::from(made), "{what}");
    }
}

pub(crate) async fn connect(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

pub(crate) fn signal(signal: &str, pid: &str) {
    let sent = std::process::Command::new("kill").args([signal, pid]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn s922_a_redis_that_is_suspended_costs_calls_nothing() {
    let setup = setup(WithoutStore::Share).await;
    let mut connection = connect(&setup.server).await;
    let info =
        redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await.unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim();
    signal("-STOP", pid);
    setup.check_outage("suspended").await;
    signal("-CONT", pid);
    setup.check_recovery("suspended").await;
}

#[tokio::test]
async fn s922_a_redis_that_is_killed_cut_off_or_slow_costs_calls_nothing() {
    let mut setup = setup(WithoutStore::Share).await;
    setup.server.kill();
    setup.check_outage("killed").await;
    setup.server.start();
    setup.check_recovery("killed").await;
    setup.proxy.cut();
    setup.check_outage("cut off").await;
    setup.proxy.mend();
    setup.check_recovery("cut off").await;
    setup.proxy.cut_answers();
    setup.check_outage("without answers").await;
    setup.proxy.mend();
    setup.check_recovery("without answers").await;
    // The connection is silent for ever; a new one is not.
    setup.proxy.hang();
    setup.check_recovery("silent connection").await;
    setup.proxy.delay(Duration::from_millis(100));
    setup.check_outage("200 ms slow").await;
    setup.proxy.delay(Duration::ZERO);
    setup.check_recovery("200 ms slow").await;
}

#[tokio::test]
async fn s923_with_closed_no_call_is_admitted_while_redis_is_away() {
    let setup = setup(WithoutStore::Closed).await;
    setup.proxy.cut();
    setup.until_away(true).await;
    let (made, admitted, slow) = setup.load().await;
    assert_eq!(admitted, 0);
    assert!(slow * 4 < made, "{slow} of {made}");
}

#[tokio::test]
async fn s922_after_flushall_and_script_flush_the_limit_goes_on() {
    let setup = setup(WithoutStore::Closed).await;
    let mut connection = connect(&setup.server).await;
    for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"]] {
        let mut flush = redis::cmd(command[0]);
        let _: String = flush.arg(command[1]).query_async(&mut connection).await.unwrap();
        let (made, admitted, _) = setup.load().await;
        println!("{command:?}: {made} calls, {admitted} admitted");
        assert!(admitted > 100 && admitted <= 200 * 2 + 20 + 20 + 40, "{admitted}");
    }
}

/// Forwards connections to the server that is the primary when they are made.
async fn forward(listener: TcpListener, primary: Arc<AtomicU16>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let port = primary.load(Ordering::SeqCst);
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

#[tokio::test]
async fn s922_after_a_failover_the_fleet_continues_from_the_replicated_state() {
    let (mut old, new) = (Server::redis(), Server::redis());
    let mut connections = (connect(&old).await, connect(&new).await);
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg("127.0.0.1").arg(old.port());
    follow.query_async::<String>(&mut connections.1).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let primary = Arc::new(AtomicU16::new(old.port()));
    let mut forwarding = JoinSet::new();
    forwarding.spawn(forward(listener, Arc::clone(&primary)));

    let (policies, policy, _shutdown) = share(port, WithoutStore::Share).await;
    // On a busy machine, an answer may take longer than 25 ms.
    while policies.force_open("p", Duration::from_secs(600), "ops").await.is_err() {}
    let mut wait = redis::cmd("WAIT");
    wait.arg(1).arg(50);
    // The replica may still be copying.
    while wait.query_async::<u32>(&mut connections.0).await.unwrap() == 0 {}
    old.kill();
    until("away", || policies.store().unwrap().is_away).await;
    let mut lead = redis::cmd("REPLICAOF");
    lead.arg("NO").arg("ONE").query_async::<String>(&mut connections.1).await.unwrap();
    primary.store(new.port(), Ordering::SeqCst);
    until("back", || !policies.store().unwrap().is_away).await;
    assert!(policy.status().forced.is_some());
    // A replica that starts now receives the replicated state.
    let (_late, late_policy, _late_shutdown) = share(port, WithoutStore::Share).await;
    until("forced", || late_policy.status().forced.is_some()).await;
    while policies.release("p", "ops").await.is_err() {}
    until("released", || late_policy.status().forced.is_none()).await;
    until("both are seen", || policies.store().unwrap().replicas == 2).await;
}

#[tokio::test]
async fn s1555_a_process_starts_without_redis_and_shares_when_it_is_there() {
    let mut server = Server::redis();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    server.kill();
    assert!(Redis::connect(&url).await.is_err());
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let policy = Policy::new("p").rate(Rate::per(1, Duration::from_secs(3_600)).burst(2));
    let policy = policy.start(&shutdown).unwrap();
    let policies: Policies = [policy.clone()].into_iter().collect();
    let policies = policies.shared(Redis::open(&url).unwrap(), "checkout").unwrap();
    let is_away = || policies.store().unwrap().is_away;
    // The limit is that of one replica.
    for is_admitted in [true, true, false] {
        assert_eq!(policy.call(async |_| Ok::<_, ()>(())).await.is_ok(), is_admitted);
    }
    assert!(is_away());
    assert_eq!(policies.store().unwrap().decided_alone, 3);
    server.start();
    while is_away() {
        sleep(Duration::from_millis(5)).await;
    }
    // The fleet has admitted nothing yet.
    let mut admitted = 0;
    while admitted < 2 {
        admitted += u32::from(policy.call(async |_| Ok::<_, ()>(())).await.is_ok());
        sleep(Duration::from_millis(5)).await;
    }
    assert!(Redis::open("redi://x").is_err());
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}

/// The text of an error and of what caused it.
fn text(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", text(source)));
    format!("{error}{}", source.unwrap_or_default())
}

#[tokio::test]
async fn s1783_a_redis_that_accepts_no_script_is_refused_when_connecting() {
    let server = Server::redis();
    let address = format!("127.0.0.1:{}/", server.port());
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut run = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        let () = redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap();
    };
    let refused = async |user: &str, advice: &str| {
        let error = Redis::connect(&format!("redis://{user}{address}")).await.unwrap_err();
        assert!(error.to_string().contains(advice), "{}", text(&error));
    };
    run("ACL SETUSER none on >secret ~* +ping");
    refused("none:secret@", "permit the user").await;
    run("ACL SETUSER reader on >secret ~* +@all -@write");
    refused("reader:secret@", "permit the user").await;
    // Which keys there will be is not known yet.
    run("ACL SETUSER one on >secret ~adieu:{checkout}* +@all");
    Redis::connect(&format!("redis://one:secret@{address}")).await.unwrap();
    run("CONFIG SET requirepass secret");
    refused("", "requires a password").await;
    refused(":wrong@", "check the user and the password").await;
    Redis::connect(&format!("redis://:secret@{address}")).await.unwrap();
    // Of a primary that is not there.
    run("REPLICAOF 127.0.0.1 1");
    refused(":secret@", "use the address of its primary").await;
}
