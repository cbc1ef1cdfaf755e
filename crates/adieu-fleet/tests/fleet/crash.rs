//! A Postgres server of which one process crashes: it ends all sessions, and goes on.

use std::time::{Duration, Instant};

use adieu_core::{Deadline, Signal};
use adieu_fleet::{Lock, LockSpec, Postgres, PostgresSession};
use adieu_testkit::servers::{Options, Server};
use nix::sys::signal::{Signal as Unix, kill};
use nix::unistd::Pid;

use crate::history::read;
use crate::lock::owner;
use crate::postgres::{client, config};
use crate::replica::Orders;
use crate::stage::{Kind, Stage};

/// Connects again and again until the server has recovered.
async fn recovered(server: &Server) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while Postgres::connect(&config(server.port())).await.is_err() {
        assert!(Instant::now() < give_up, "the server does not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process of the server whose session has an advisory lock.
async fn holding_process(server: &Server) -> Pid {
    let (client, _driving) = client(server).await;
    let holding = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted";
    Pid::from_raw(client.query_one(holding, &[]).await.unwrap().get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s139_what_was_held_when_a_process_of_the_server_crashed_is_held_to_its_end() {
    let stage = Stage::new(Kind::Session);
    let server = stage.server.as_ref().unwrap();
    let ttl = Duration::from_secs(10);
    let mut one = stage.replica(&Orders { role: "hold", ttl, clock: None });
    one.wait_for("@wrote");
    // From now on it does not see that its connection is gone.
    one.signal(Signal::new(Unix::SIGSTOP as i32));
    let stopped = Instant::now();
    let started = "SELECT pg_postmaster_start_time()::text";
    let start_of = async |server: &Server| -> String {
        let (client, _driving) = client(server).await;
        client.query_one(started, &[]).await.unwrap().get(0)
    };
    let before = start_of(server).await;
    kill(holding_process(server).await, Unix::SIGKILL).unwrap();
    recovered(server).await;
    assert_eq!(start_of(server).await, before, "it is the same server that goes on");

    let (client, _driving) = client(server).await;
    let over = "SELECT clock_timestamp() >= $1::text::timestamptz";
    let expires = "SELECT expires_at::text FROM adieu_leases WHERE key = 'session:job'";
    let expires: String = client.query_one(expires, &[]).await.unwrap().get(0);
    let locks = PostgresSession::new(&config(server.port())).unwrap();
    let two = Lock::new(locks, LockSpec::new("job").ttl(ttl), &owner("two")).unwrap();
    let holder = two.holder().await.unwrap().expect("it is held by one that may not know");
    let next = two.acquire(Deadline::after(3 * ttl)).await.unwrap();
    let is_over: bool = client.query_one(over, &[&expires]).await.unwrap().get(0);
    assert!(is_over, "granted {:?} after the crash", stopped.elapsed());
    assert!(next.fence() > holder.fence);
    one.signal(Signal::new(Unix::SIGCONT as i32));
    one.wait_for(&format!("@lost {}", holder.fence));
    next.release(Deadline::after(ttl)).await.unwrap();
    assert!(!read(&stage.path("log")).is_empty());
}

// What ends one session and no more frees its lock at once, also after the server has recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s139_after_a_recovery_a_session_that_ends_frees_its_lock_at_once() {
    let server = Server::postgres();
    let lock = |who: &str, key: &str| {
        let locks = PostgresSession::new(&config(server.port())).unwrap();
        Lock::new(locks, LockSpec::new(key).ttl(Duration::from_secs(60)), &owner(who)).unwrap()
    };
    let by = || Deadline::after(Duration::from_secs(10));
    let lost = lock("one", "lost").acquire(by()).await.unwrap();
    kill(holding_process(&server).await, Unix::SIGKILL).unwrap();
    recovered(&server).await;
    let lease = lock("one", "job").acquire(by()).await.unwrap();
    let (client, _driving) = client(&server).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
    client.execute(end, &[]).await.unwrap();
    let next = lock("two", "job").acquire(by()).await.unwrap();
    assert!(next.fence() > lease.fence());
    let holder = lock("two", "lost").holder().await.unwrap().unwrap();
    assert_eq!(holder.fence, lost.fence(), "held until its time is over");
}

#[tokio::test]
async fn s289_a_server_that_does_not_wait_for_its_disk_remembers_grants_and_markers() {
    let lazy = ["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10000"];
    let mut server = Server::postgres_with(Options::new().args(lazy));
    let by = || Deadline::after(Duration::from_secs(10));
    let spec = || LockSpec::new("job").ttl(Duration::from_secs(60));
    let lock = || {
        let locks = Postgres::new(&config(server.port())).unwrap();
        Lock::new(locks, spec(), &owner("one")).unwrap()
    };
    for _ in 0..3 {
        lock().acquire(by()).await.unwrap().release(by()).await.unwrap();
    }
    let lease = lock().acquire(by()).await.unwrap();
    lease.mark("written", "before the crash").await.unwrap();
    let (one, fence) = (lock(), lease.fence());
    server.kill();
    server.start();
    let holder = one.holder().await.unwrap();
    assert_eq!(holder.map(|holder| holder.fence), Some(fence));
    let marker = one.locks().marker(one.key(), "written").await.unwrap();
    assert_eq!(marker.map(|marker| marker.value).as_deref(), Some("before the crash"));
}
