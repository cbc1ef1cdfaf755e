//! The outcome of each order while backends, replicas and Redis are restarted under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu::Signal;
use adieu_testkit::process::Process;
use adieu_testkit::servers::Server;
use adieu_tests::load::Connection;
use adieu_tests::plan::Client;
use http_body_util::BodyExt;
use tempfile::NamedTempFile;

use super::{free_address, until};

/// How an order ended, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ordered,
    /// A policy or the gate of the service refused it before the handler.
    Refused,
    /// The handler has answered that the backend did not.
    Failed,
    /// The connection was accepted, and ended without an answer.
    Lost,
}

/// The orders that clients have sent, and how each ended.
#[derive(Default)]
struct Orders {
    next: AtomicU64,
    ended: Mutex<BTreeMap<u64, (Outcome, String)>>,
}

/// How a client connects.
#[derive(Clone, Copy)]
enum Connecting {
    Once,
    ForEachOrder,
}

// === impl Orders ===

impl Orders {
    /// Sends orders until no process listens there.
    async fn send(self: Arc<Self>, at: SocketAddr, connecting: Connecting) {
        let mut kept = None;
        loop {
            let kept_open = kept.take().filter(Connection::is_open);
            let connection = match (kept_open, connecting) {
                (Some(connection), Connecting::Once) => Ok(connection),
                _ => Connection::open(Client::Http1, at).await,
            };
            let Ok(mut connection) = connection else { return };
            let order = self.next.fetch_add(1, Relaxed);
            let (outcome, said) = match ask(&mut connection, order).await {
                Ok((200, said)) => (Outcome::Ordered, said),
                Ok((429 | 503, said)) if said.starts_with('{') => (Outcome::Refused, said),
                Ok((503, said)) => (Outcome::Failed, said),
                Ok((status, said)) => panic!("order {order}: {status} {said}"),
                Err(error) => (Outcome::Lost, error),
            };
            kept = Some(connection);
            let twice = self.ended.lock().unwrap().insert(order, (outcome, said));
            assert_eq!(twice, None, "order {order} has ended twice");
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    }

    fn count(&self, wanted: Outcome) -> usize {
        self.ended.lock().unwrap().values().filter(|(outcome, _)| *outcome == wanted).count()
    }
}

async fn ask(connection: &mut Connection, order: u64) -> Result<(u16, String), String> {
    let asking = async {
        let (status, body) = connection.send("POST", &format!("/order/{order}")).await?;
        let body = body.collect().await?.to_bytes();
        Ok((status.as_u16(), String::from_utf8_lossy(&body).into_owned()))
    };
    let answered: Result<_, Box<dyn std::error::Error + Send + Sync>> = asking.await;
    answered.map_err(|error| format!("{error:?}"))
}

/// A process of the service.
struct Member {
    process: Process,
    at: SocketAddr,
    admin: SocketAddr,
}

impl Member {
    fn start(role: &str, at: SocketAddr, more: &[String]) -> Self {
        let admin = free_address();
        let mut service = Command::new(env!("CARGO_BIN_EXE_resilience-service"));
        service.arg(role).arg(at.to_string()).arg(admin.to_string()).args(more);
        // A backend closes its gate at once: it refuses requests on connections that are in use.
        let lame_duck = if role == "payments" { "none" } else { "300ms" };
        service.env("ADIEU__KILL_AFTER", "60s").env("ADIEU__LAME_DUCK", lame_duck);
        let member = Self { process: Process::start(&mut service), at, admin };
        until("ready", || member.page("/readyz").is_some());
        member
    }

    fn page(&self, path: &str) -> Option<String> {
        let mut curl = Command::new("curl");
        let output = curl.args(["-fsS", &format!("{}{path}", self.admin)]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn is_away(&self) -> bool {
        let metrics = self.page("/metrics").unwrap();
        metrics.lines().any(|line| line == "adieu_resilience_store{service=\"checkout\"} 0")
    }

    /// Ends the process with SIGTERM, under load.
    fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
        assert!(ended.report.as_ref().unwrap().is_clean(), "{ended:#?}");
        assert!(!ended.stderr.contains("breaker opened"), "{}", ended.stderr);
    }
}

#[test]
fn s1243_through_restarts_of_everything_each_order_ends_once_and_no_breaker_opens() {
    let (mut redis, log) = (Server::redis(), NamedTempFile::new().unwrap());
    let port = free_address().port();
    let backend = |host: &str| {
        let at = format!("{host}:{port}").parse().unwrap();
        Member::start("payments", at, &[log.path().display().to_string()])
    };
    let hosts = ["127.0.0.1", "127.0.0.2"];
    let mut backends = hosts.map(backend);
    let checkout = |hosts: [&str; 2]| {
        let redis = format!("redis://127.0.0.1:{}/", redis.port());
        let [one, other] = hosts.map(str::to_owned);
        Member::start("checkout", free_address(), &[port.to_string(), one, other, redis])
    };
    let [one, other] = [checkout(hosts), checkout([hosts[1], hosts[0]])];

    let orders = Arc::<Orders>::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let kinds = [Connecting::Once, Connecting::ForEachOrder, Connecting::ForEachOrder];
    let clients: Vec<_> = [one.at, other.at]
        .into_iter()
        .flat_map(|at| kinds.map(|kind| runtime.spawn(Arc::clone(&orders).send(at, kind))))
        .collect();
    let more_orders = |what: &str| {
        let before = orders.count(Outcome::Ordered);
        until(what, || orders.count(Outcome::Ordered) > before + 200);
    };
    more_orders("at the start");
    // A rolling restart of the backends, while Redis answers and while it does not.
    for is_away in [false, true] {
        if is_away {
            redis.kill();
            until("away", || one.is_away() && other.is_away());
            more_orders("without Redis");
        }
        for (at, host) in hosts.iter().enumerate() {
            let [first, second] = backends;
            let (leaving, staying) = if at == 0 { (first, second) } else { (second, first) };
            leaving.stop();
            more_orders("with one backend");
            let next = backend(host);
            backends = if at == 0 { [next, staying] } else { [staying, next] };
            more_orders("with both backends");
        }
    }
    // Killed with orders inside: it is unknown whether these were charged, so they are not repeated.
    let [killed, staying] = backends;
    drop(killed);
    more_orders("after kill -9");
    backends = [backend(hosts[0]), staying];
    one.stop();
    redis.start();
    until("back", || !other.is_away());
    more_orders("with one replica");
    let metrics = other.page("/metrics").unwrap();
    let opened: Vec<_> =
        metrics.lines().filter(|line| line.starts_with("adieu_resilience_opened_total{")).collect();
    assert!(!opened.is_empty() && opened.iter().all(|line| line.ends_with(" 0")), "{opened:?}");
    other.stop();
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    backends.into_iter().for_each(Member::stop);
    check(&orders, &std::fs::read_to_string(log.path()).unwrap());
}

/// Each order has one outcome, and the backends have charged as its outcome states: POST is
/// repeated only if the backend has not processed it.
fn check(orders: &Orders, log: &str) {
    let mut charges = BTreeMap::<u64, u32>::new();
    for order in log.lines() {
        *charges.entry(order.parse().unwrap()).or_default() += 1;
    }
    let ended = orders.ended.lock().unwrap();
    assert_eq!(ended.len() as u64, orders.next.load(Relaxed), "an order has no outcome");
    let mut counts = BTreeMap::<_, u32>::new();
    for (order, (outcome, said)) in &*ended {
        let charged = charges.remove(order).unwrap_or(0);
        *counts.entry((*outcome, charged)).or_default() += 1;
        match outcome {
            Outcome::Ordered => assert_eq!(charged, 1, "order {order}"),
            Outcome::Refused => assert_eq!(charged, 0, "order {order}: {said}"),
            Outcome::Failed => assert!(charged <= 1, "order {order}: {said}"),
            Outcome::Lost => panic!("order {order} was not answered: {said}"),
        }
    }
    assert!(charges.is_empty(), "charges of orders that no client sent: {charges:?}; {counts:?}");
}
