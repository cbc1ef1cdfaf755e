//! A service that follows the documents keeps every order that it has accepted.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu::Signal;
use adieu_testkit::ledger::{Fact, Ledger};
use adieu_testkit::process::{Ended, Process};
use adieu_testkit::servers::Server;
use adieu_tests::load::Connection;
use adieu_tests::plan::Client;
use http::StatusCode;

/// How often the service is stopped, and how many orders it accepts at least between two stops.
const RESTARTS: usize = 20;
const ORDERS: usize = 500;
const CLIENTS: u64 = 8;

/// The address of the service, and the ledger for accepted orders.
type Target = Arc<Mutex<Option<(SocketAddr, Arc<Ledger>)>>>;

#[test]
fn s234_ten_thousand_orders_over_twenty_sigterms_are_all_in_the_store() {
    let server = Server::postgres();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port());
    let store = runtime.block_on(connect(&database));
    let folder = tempfile::tempdir().unwrap();
    let jobs: BTreeSet<String> = (0..4_000).map(|job| format!("job-{job}")).collect();
    for job in &jobs {
        std::fs::write(folder.path().join(job), "").unwrap();
    }
    let target = Target::default();
    let mut clients = tokio::task::JoinSet::new();
    let next = Arc::new(AtomicU64::new(0));
    for _ in 0..CLIENTS {
        clients.spawn_on(order(Arc::clone(&target), Arc::clone(&next)), runtime.handle());
    }

    let (mut accepted, mut acknowledged) = (0, BTreeSet::new());
    for _ in 0..RESTARTS {
        let ledger = Arc::new(Ledger::new());
        let ended = run(&database, folder.path(), &target, &ledger);
        let stored = runtime.block_on(stored(&store));
        for order in &stored {
            ledger.finished("order", order);
        }
        // The next process can take jobs that are in the queue again.
        let (queued, taken) = (list(folder.path()), list(&folder.path().join("taken")));
        assert!(taken.is_empty(), "neither acknowledged nor returned: {taken:?}\n{ended:#?}");
        for job in jobs.iter().filter(|job| !queued.contains(*job)) {
            ledger.accepted("job", job);
            acknowledged.insert(job.clone());
            if stored.contains(job) {
                ledger.finished("job", job);
            }
        }
        let verdict = ledger.judge(&(&ended).into());
        assert!(verdict.is_honest() && verdict.is_lossless(), "{verdict}\n{ended:#?}");
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
        accepted += ledger.count(Fact::Accepted, "order");
    }
    runtime.block_on(clients.shutdown());
    assert!(accepted >= RESTARTS * ORDERS, "{accepted} orders");
    assert!(acknowledged.len() >= RESTARTS * 10, "{} jobs", acknowledged.len());
}

/// Runs the service until it has accepted enough, and stops it under load.
fn run(database: &str, queue: &Path, target: &Target, ledger: &Arc<Ledger>) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiosk"));
    command.arg(database).arg(queue);
    // Not the platform of this machine. Routers are fast here.
    command.env("ADIEU__KILL_AFTER", "60s").env("ADIEU__LAME_DUCK", "300ms");
    let mut process = Process::start(&mut command);
    let line = process.wait_for("listening on ");
    let at = line.trim_start_matches("listening on ").parse().unwrap();
    *target.lock().unwrap() = Some((at, Arc::clone(ledger)));
    let enough = || ledger.count(Fact::Accepted, "order") >= ORDERS;
    let mut waited = 0;
    while !enough() {
        std::thread::sleep(Duration::from_millis(20));
        waited += 1;
        assert!(waited < 3_000, "the service does not accept orders");
    }
    process.signal(Signal::TERM);
    let ended = process.wait();
    // Clients have noticed its end, and record no more facts about it.
    *target.lock().unwrap() = None;
    let mut waited = 0;
    while Arc::strong_count(ledger) > 1 {
        std::thread::sleep(Duration::from_millis(5));
        waited += 1;
        assert!(waited < 6_000, "a client does not end its request");
    }
    ended
}

/// Sends orders without a pause to the service that currently runs.
async fn order(target: Target, next: Arc<AtomicU64>) {
    loop {
        let to = target.lock().unwrap().clone();
        if let Some((at, ledger)) = to
            && let Ok(mut connection) = Connection::open(Client::Http1, at).await
        {
            loop {
                let id = format!("order-{}", next.fetch_add(1, Ordering::Relaxed));
                match connection.send("POST", &format!("/orders/{id}")).await {
                    Ok((StatusCode::ACCEPTED, _)) => ledger.accepted("order", &id),
                    Ok(_) => ledger.refused("order", &id),
                    // Unknown whether the order was accepted.
                    Err(_) => break,
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn connect(database: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(database, tokio_postgres::NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with its client")]
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE orders (id TEXT PRIMARY KEY)").await.unwrap();
    client
}

async fn stored(store: &tokio_postgres::Client) -> BTreeSet<String> {
    let rows = store.query("SELECT id FROM orders", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Lists the files of a folder.
fn list(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}
