//! Permanent errors: they end a wait immediately, and are reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adieu_core::Deadline;
use adieu_core::adapter::error_text;
use adieu_fleet::etcd_client::{Client, ConnectOptions};
use adieu_fleet::{
    AcquireError, BackendError, Etcd, Files, Lock, LockBackend, LockSpec, OnceCx, OtherReplicas,
    Postgres, PostgresSession, Redis, Term, TurnError,
};
use adieu_testkit::servers::Server;

use crate::flaky::{Flaky, Mood};
use crate::support::{
    etcd_urls, owner, postgres_client as client, postgres_config as config, shutdown,
};

async fn ran<T>(_: T) -> Result<(), BackendError> {
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits in every possible way, and expects an error with this cause long before the deadline.
async fn ends_immediately(locks: impl LockBackend + Clone, cause: &str) {
    let lock = Lock::new(locks, "job", &owner("one")).unwrap();
    let began = Instant::now();
    let by = || Deadline::after(PATIENCE);
    let errors = [
        error_text(&lock.acquire(by()).await.unwrap_err()),
        error_text(&lock.singleton(OtherReplicas::Wait, by(), ran).await.unwrap_err()),
        error_text(&lock.once_per_fleet("v1", by(), ran::<OnceCx>).await.unwrap_err()),
    ];
    for error in errors {
        assert!(error.contains(cause), "{error}");
    }
    assert!(began.elapsed() < PATIENCE / 2, "waited for {:?}", began.elapsed());
}

#[tokio::test]
async fn s282_a_password_a_database_and_a_permission_that_postgres_refuses() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let hba: String =
        client.query_one("SELECT current_setting('hba_file')", &[]).await.unwrap().get(0);
    client
        .batch_execute(&format!(
            "CREATE ROLE guest LOGIN PASSWORD 'right';
             COPY (VALUES ('host all guest 127.0.0.1/32 scram-sha-256'), ('host all all all trust'))
             TO '{hba}'"
        ))
        .await
        .unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let port = server.port();
    let guest = |rest: &str| format!("host=127.0.0.1 port={port} user=guest {rest}");
    // The server reloads its rules a moment later.
    let give_up = Instant::now() + Duration::from_secs(10);
    while Postgres::connect(&guest("dbname=postgres")).await.is_ok() {
        assert!(Instant::now() < give_up);
    }
    let wrong = [
        (guest("password=wrong dbname=postgres"), "password authentication failed"),
        (guest("dbname=postgres"), "password missing"),
        (guest("password=right dbname=postgres"), "permission denied for schema public"),
        (config(port).replace("dbname=postgres", "dbname=nowhere"), "\"nowhere\" does not exist"),
        (config(port).replace("user=postgres", "user=nobody"), "\"nobody\" does not exist"),
    ];
    for (config, cause) in wrong {
        ends_immediately(Postgres::new(&config).unwrap(), cause).await;
        ends_immediately(PostgresSession::new(&config).unwrap(), cause).await;
        let error = Postgres::connect(&config).await.unwrap_err();
        assert!(error.is_permanent() && error_text(&error).contains(cause), "{error:?}");
    }
}

#[tokio::test]
async fn s282_a_password_and_a_permission_that_redis_refuses() {
    let server = Server::redis();
    let url = |user: &str| format!("redis://{user}{}/", server.address());
    let setup = adieu_fleet::redis::Client::open(url("")).unwrap();
    let mut setup = setup.get_multiplexed_async_connection().await.unwrap();
    let rights = ["ACL", "SETUSER", "guest", "on", ">right", "~elsewhere:*", "+@all"];
    let mut command = adieu_fleet::redis::cmd(rights[0]);
    let () = command.arg(&rights[1..]).query_async(&mut setup).await.unwrap();
    let began = Instant::now();
    let error = Redis::connect(&url("guest:wrong@")).await.unwrap_err();
    assert!(
        error.is_permanent() && error_text(&error).contains("authentication failed"),
        "{error:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    ends_immediately(Redis::connect(&url("guest:right@")).await.unwrap(), "no permissions").await;
}

#[tokio::test]
async fn s282_a_user_that_etcd_refuses() {
    let server = Server::etcd();
    let url = etcd_urls(&server);
    let mut client = Client::connect(&url, None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.role_add("guest").await.unwrap();
    for (user, role) in [("root", "root"), ("guest", "guest")] {
        client.user_add(user, "right", None).await.unwrap();
        client.user_grant_role(user, role).await.unwrap();
    }
    client.auth_enable().await.unwrap();
    let error = Etcd::connect(&url).await.unwrap_err();
    assert!(error.is_permanent() && error_text(&error).contains("user name is empty"), "{error:?}");
    let options = ConnectOptions::new().with_user("guest", "right");
    let guest = Client::connect(&url, Some(options)).await.unwrap();
    ends_immediately(Etcd::new(guest), "permission denied").await;
}

#[tokio::test]
async fn s282_a_damaged_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("job.lease"), "adieu le").unwrap();
    ends_immediately(Files::open(folder.path()).unwrap(), "is damaged; restore it").await;
}

#[tokio::test(start_paused = true)]
async fn s282_a_leader_campaigns_again_after_a_pause() {
    let flaky = Arc::new(Flaky::default());
    flaky.be(Mood::Refusing);
    let lock = Lock::new(Arc::clone(&flaky), "job", &owner("one")).unwrap();
    let shutdown = shutdown();
    let leadership = lock.lead(&shutdown, async |term: Term| term.stopped().await).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(leadership.leading(), None);
    // With the usual pause between attempts there would be several hundred requests.
    assert!((2..60).contains(&flaky.requests()), "{}", flaky.requests());
    flaky.be(Mood::Good);
    tokio::time::timeout(Duration::from_secs(600), leadership.until_leading()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s283_a_wait_that_times_out_reports_the_last_error() {
    let spec = || LockSpec::new("job").ttl(Duration::from_secs(30));
    let until = || Deadline::after(Duration::from_secs(10));
    for way in 0..3 {
        let flaky = Arc::new(Flaky::default());
        let lock = Lock::new(Arc::clone(&flaky), spec(), &owner("one")).unwrap();
        flaky.be(Mood::Failing);
        let silenced = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            flaky.be(Mood::Silent);
        };
        let waiting = async {
            match way {
                0 => error_text(&lock.acquire(until()).await.unwrap_err()),
                1 => error_text(
                    &lock.singleton(OtherReplicas::Wait, until(), ran).await.unwrap_err(),
                ),
                _ => {
                    let once = lock.once_per_fleet("v1", until(), ran::<OnceCx>);
                    error_text(&once.await.unwrap_err())
                }
            }
        };
        let (text, ()) = tokio::join!(waiting, silenced);
        assert!(text.ends_with("flaky failed to answer: no"), "{text}");
    }
    // Silent from the beginning: the missing response is the only error.
    let flaky = Arc::new(Flaky::default());
    flaky.be(Mood::Silent);
    let lock = Lock::new(Arc::clone(&flaky), spec(), &owner("one")).unwrap();
    let error = lock.acquire(until()).await.unwrap_err();
    assert!(error_text(&error).ends_with("no response within 10000ms"), "{error:?}");
    let error = lock.singleton(OtherReplicas::Wait, until(), ran).await.unwrap_err();
    assert!(matches!(&error, TurnError::NoTurn { source: AcquireError::TimedOut { .. }, .. }));
    assert!(error_text(&error).ends_with("no response within 10000ms"), "{error:?}");
}

#[tokio::test]
async fn s285_connecting_to_an_unresponsive_server_fails_with_the_cause() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    for (port, cause) in [(dead, "Connection refused"), (silent, "")] {
        let began = Instant::now();
        let url = [format!("http://127.0.0.1:{port}")];
        let redis_url = format!("redis://127.0.0.1:{port}/");
        let (etcd, redis, rows, sessions) = tokio::join!(
            Etcd::connect(&url),
            Redis::connect(&redis_url),
            async { Postgres::connect(&config(port)).await },
            async { PostgresSession::connect(&config(port)).await },
        );
        let errors =
            [etcd.unwrap_err(), redis.unwrap_err(), rows.unwrap_err(), sessions.unwrap_err()];
        for error in errors {
            assert!(!error.is_permanent(), "the server may start later: {error:?}");
            let text = error_text(&error);
            assert!(text.contains("failed to connect: ") && text.contains(cause), "{text}");
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
    // One endpoint of several is enough.
    let server = Server::etcd();
    let urls = [format!("http://127.0.0.1:{dead}"), format!("http://{}", server.address())];
    Etcd::connect(&urls).await.unwrap();
}
