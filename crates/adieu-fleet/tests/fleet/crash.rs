//! A Postgres server with a process that crashes: the server ends all sessions, and recovers.

use std::time::{Duration, Instant};

use adieu_core::{Deadline, Signal};
use adieu_fleet::{Postgres, PostgresSession};
use adieu_testkit::servers::{Options, Server};
use nix::sys::signal::{Signal as Unix, kill};
use nix::unistd::Pid;

use crate::history::read;
use crate::replica::Orders;
use crate::stage::{Kind, Stage};
use crate::support::{by, lock, postgres_client as client, postgres_config as config, secs};

/// Kills the server process whose session has an advisory lock, and waits until the server has
/// recovered.
async fn crash(server: &Server) {
    let (client, mut sessions) = client(server).await;
    let holding = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let holder = Pid::from_raw(client.query_one(holding, &[]).await.unwrap().get(0));
    kill(holder, Unix::SIGKILL).unwrap();
    let patience = Duration::from_secs(30);
    // The server ends every session when it notices the crash. Until then it accepts connections.
    tokio::time::timeout(patience, sessions.join_next()).await.expect("it notices the crash");
    let give_up = Instant::now() + patience;
    while Postgres::connect(&config(server.port())).await.is_err() {
        assert!(Instant::now() < give_up, "the server does not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s139_a_lock_held_during_a_server_crash_stays_held_until_it_expires() {
    let stage = Stage::new(Kind::Session);
    let server = stage.server.as_ref().unwrap();
    let ttl = Duration::from_secs(10);
    let mut one = stage.replica(&Orders { role: "hold", ttl, clock: None });
    one.wait_for("@wrote");
    // From now on the replica does not notice that its connection is lost.
    one.signal(Signal::new(Unix::SIGSTOP as i32));
    let stopped = Instant::now();
    let started = "SELECT pg_postmaster_start_time()::text";
    let start_of = async |server: &Server| -> String {
        let (client, _driving) = client(server).await;
        client.query_one(started, &[]).await.unwrap().get(0)
    };
    let before = start_of(server).await;
    crash(server).await;
    assert_eq!(start_of(server).await, before, "the server was not restarted");

    let (client, _driving) = client(server).await;
    let over = "SELECT clock_timestamp() >= $1::text::timestamptz";
    let expires = "SELECT expires_at::text FROM adieu_leases WHERE key = 'session:job'";
    let expires: String = client.query_one(expires, &[]).await.unwrap().get(0);
    let locks = PostgresSession::new(&config(server.port())).unwrap();
    let two = lock(locks, "job", ttl, "two");
    let holder = two.holder().await.unwrap().expect("its holder may not have noticed the crash");
    let next = two.acquire(Deadline::after(3 * ttl)).await.unwrap();
    let is_over: bool = client.query_one(over, &[&expires]).await.unwrap().get(0);
    assert!(is_over, "granted {:?} after the crash", stopped.elapsed());
    assert!(next.fence() > holder.fence);
    one.signal(Signal::new(Unix::SIGCONT as i32));
    one.wait_for(&format!("@lost {}", holder.fence));
    next.release(Deadline::after(ttl)).await.unwrap();
    assert!(!read(&stage.path("log")).is_empty());
}

// The end of a single session frees its lock immediately, also after the server has recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s139_after_a_recovery_a_session_that_ends_frees_its_lock_immediately() {
    let server = Server::postgres();
    let lock = |replica: &str, key: &str| {
        let locks = PostgresSession::new(&config(server.port())).unwrap();
        lock(locks, key, secs(60), replica)
    };
    let lost = lock("one", "lost").acquire(by(10)).await.unwrap();
    crash(&server).await;
    let lease = lock("one", "job").acquire(by(10)).await.unwrap();
    let (client, _driving) = client(&server).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
    client.execute(end, &[]).await.unwrap();
    let next = lock("two", "job").acquire(by(10)).await.unwrap();
    assert!(next.fence() > lease.fence());
    let holder = lock("two", "lost").holder().await.unwrap().unwrap();
    assert_eq!(holder.fence, lost.fence(), "held until it expires");
}

#[tokio::test]
async fn s289_grants_and_markers_survive_a_crash_without_synchronous_commit() {
    let lazy = ["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10000"];
    let mut server = Server::postgres_with(Options::new().args(lazy));
    let lock = || {
        let locks = Postgres::new(&config(server.port())).unwrap();
        lock(locks, "job", secs(60), "one")
    };
    for _ in 0..3 {
        lock().acquire(by(10)).await.unwrap().release(by(10)).await.unwrap();
    }
    let lease = lock().acquire(by(10)).await.unwrap();
    lease.mark("written", "before the crash").await.unwrap();
    let (one, fence) = (lock(), lease.fence());
    server.kill();
    server.start();
    let holder = one.holder().await.unwrap();
    assert_eq!(holder.map(|holder| holder.fence), Some(fence));
    let marker = one.locks().marker(one.key(), "written").await.unwrap();
    assert_eq!(marker.map(|marker| marker.value).as_deref(), Some("before the crash"));
}
