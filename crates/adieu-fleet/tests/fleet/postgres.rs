//! Locks in Postgres.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::Deadline;
use adieu_fleet::{Lock, LockSpec, Locks, Postgres, PostgresSession};
use adieu_testkit::servers::Server;
use tokio_postgres::NoTls;

use crate::conformance::{Backend, conforms};
use crate::lock::owner;

pub(crate) fn config(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
}

#[tokio::test]
async fn s130_postgres_rows_conform() {
    let server = Server::postgres();
    let config = config(server.port());
    conforms(Backend {
        connect: &|| {
            let postgres = Postgres::new(&config).unwrap();
            Box::pin(async { Arc::new(postgres) as Arc<dyn Locks> })
        },
        ttl: Duration::from_millis(300),
        late: Duration::from_millis(100),
    })
    .await;
}

#[tokio::test]
async fn s130_postgres_sessions_conform() {
    let server = Server::postgres();
    let config = config(server.port());
    conforms(Backend {
        connect: &|| {
            let postgres = PostgresSession::new(&config).unwrap();
            Box::pin(async { Arc::new(postgres) as Arc<dyn Locks> })
        },
        ttl: Duration::from_millis(300),
        late: Duration::from_millis(100),
    })
    .await;
}

pub(crate) async fn client(server: &Server) -> (tokio_postgres::Client, tokio::task::JoinSet<()>) {
    let (client, connection) =
        tokio_postgres::connect(&config(server.port()), NoTls).await.unwrap();
    let mut driving = tokio::task::JoinSet::new();
    driving.spawn(async { drop(connection.await) });
    (client, driving)
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
    assert_eq!(client.execute(update, &[&2_i64, &stale]).await.unwrap(), 1, "as often as it likes");
    old.release(Deadline::after(Duration::from_secs(5))).await.unwrap();

    let new = two.try_acquire().await.unwrap();
    let fence = new.check().unwrap().as_i64();
    assert_eq!(client.execute(update, &[&3_i64, &fence]).await.unwrap(), 1);
    assert_eq!(client.execute(update, &[&4_i64, &stale]).await.unwrap(), 0, "refused");
    let total: i64 = client.query_one("SELECT total FROM reports", &[]).await.unwrap().get(0);
    assert_eq!(total, 3);
}

// As a transaction pooler does: each question may come to another session, which knows nothing.
#[tokio::test]
async fn s138_rows_need_no_session() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let locks = Postgres::new(&config(server.port())).unwrap();
    let lock =
        Lock::new(locks, LockSpec::new("job").ttl(Duration::from_secs(5)), &owner("one")).unwrap();
    let lease = lock.try_acquire().await.unwrap();
    let left = "SELECT count(*) FROM pg_stat_activity, pg_locks
                WHERE pg_locks.pid = pg_stat_activity.pid AND locktype = 'advisory'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    for round in 0..3 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        client.execute(end, &[]).await.unwrap();
        // The first one notices, the next one comes through.
        let give_up = std::time::Duration::from_secs(3);
        let value = round.to_string();
        let marking = async { while lease.mark("round", &value).await.is_err() {} };
        tokio::time::timeout(give_up, marking).await.unwrap();
    }
    lease.release(Deadline::after(Duration::from_secs(5))).await.unwrap();
}

#[tokio::test]
async fn s139_a_session_that_ends_gives_its_lock_back_at_once() {
    let server = Server::postgres();
    let (client, _driving) = client(&server).await;
    let locks = || PostgresSession::new(&config(server.port())).unwrap();
    let spec = || LockSpec::new("job").ttl(Duration::from_secs(60));
    let one = Lock::new(locks(), spec(), &owner("one")).unwrap();
    let two = Lock::new(locks(), spec(), &owner("two")).unwrap();
    let lease = one.try_acquire().await.unwrap();
    assert!(two.try_acquire().await.is_err());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
    client.execute(end, &[]).await.unwrap();
    let next = two.acquire(Deadline::after(Duration::from_secs(10))).await.unwrap();
    assert!(next.fence() > lease.fence());
    // It knows without having asked: its next renewal would be in twenty seconds.
    let lost = lease.lost();
    tokio::time::timeout(Duration::from_secs(5), lost.cancelled()).await.unwrap();
    assert!(lease.check().is_err());
    assert!(lease.mark("m", "late").await.is_err());
}
