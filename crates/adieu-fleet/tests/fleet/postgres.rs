//! Locks in Postgres.

use std::time::Duration;

use adieu_fleet::{Lock, LockSpec, Postgres, PostgresSession};
use adieu_testkit::servers::Server;

use crate::conformance::conforms;
use crate::support::{by, lock, owner, postgres_client as client, postgres_config as config, secs};

const TTL: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_millis(100);

/// Runs the suite on rows, on a server or behind a pooler.
pub(crate) async fn rows_conform(server: &Server) {
    conforms(async || Postgres::new(&config(server.port())).unwrap(), TTL, LATE).await;
}

#[tokio::test]
async fn s130_postgres_rows_conform() {
    rows_conform(&Server::postgres()).await;
}

#[tokio::test]
async fn s130_postgres_sessions_conform() {
    let server = Server::postgres();
    let connect = async || PostgresSession::new(&config(server.port())).unwrap();
    conforms(connect, TTL, LATE).await;
}

#[tokio::test]
async fn s141_a_postgres_update_refuses_a_stale_fence() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let tables = "CREATE TABLE reports (id int PRIMARY KEY, total bigint, fence bigint NOT NULL);
                  INSERT INTO reports VALUES (7, 0, 0)";
    client.batch_execute(tables).await.unwrap();
    let update = "UPDATE reports SET total = $1, fence = $2 WHERE id = 7 AND fence <= $2";

    let locks = Postgres::new(&config(server.port())).unwrap();
    let spec = || LockSpec::new("report-7").ttl(Duration::from_secs(2)).needs_fence();
    let one = Lock::new(locks.clone(), spec(), &owner("one")).unwrap();
    let two = Lock::new(locks.clone(), spec(), &owner("two")).unwrap();
    let old = one.try_acquire().await.unwrap();
    let stale = old.check().unwrap().as_i64();
    assert_eq!(client.execute(update, &[&1_i64, &stale]).await.unwrap(), 1);
    assert_eq!(
        client.execute(update, &[&2_i64, &stale]).await.unwrap(),
        1,
        "an equal fence is accepted"
    );
    old.release(by(5)).await.unwrap();

    let new = two.try_acquire().await.unwrap();
    let fence = new.check().unwrap().as_i64();
    assert_eq!(client.execute(update, &[&3_i64, &fence]).await.unwrap(), 1);
    assert_eq!(client.execute(update, &[&4_i64, &stale]).await.unwrap(), 0, "refused");
    let total: i64 = client.query_one("SELECT total FROM reports", &[]).await.unwrap().get(0);
    assert_eq!(total, 3);
}

// Behind a transaction pooler each statement may reach another session.
#[tokio::test]
async fn s138_rows_need_no_session() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let locks = Postgres::new(&config(server.port())).unwrap();
    let lock = lock(locks, "job", secs(5), "one");
    let lease = lock.try_acquire().await.unwrap();
    let left = "SELECT count(*) FROM pg_stat_activity, pg_locks
                WHERE pg_locks.pid = pg_stat_activity.pid AND locktype = 'advisory'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    for round in 0..3 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        client.execute(end, &[]).await.unwrap();
        // The first request notices the end of the session, the next succeeds.
        let value = round.to_string();
        let marking = async { while lease.mark("round", &value).await.is_err() {} };
        tokio::time::timeout(secs(3), marking).await.unwrap();
    }
    lease.release(by(5)).await.unwrap();
}

#[tokio::test]
async fn s139_a_session_that_ends_frees_its_lock_immediately() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let locks = || PostgresSession::new(&config(server.port())).unwrap();
    let one = lock(locks(), "job", secs(60), "one");
    let two = lock(locks(), "job", secs(60), "two");
    let lease = one.try_acquire().await.unwrap();
    assert!(two.try_acquire().await.is_err());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
    client.execute(end, &[]).await.unwrap();
    let next = two.acquire(by(10)).await.unwrap();
    assert!(next.fence() > lease.fence());
    // The holder notices without a request: its next renewal would be in twenty seconds.
    let lost = lease.lost();
    tokio::time::timeout(secs(5), lost.cancelled()).await.unwrap();
    assert!(lease.check().is_err());
    assert!(lease.mark("m", "late").await.is_err());
}
