//! Tests that only the store in Postgres needs: poolers, tables, crashes, notifications, old changes.

use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Postgres, Revision, Store, StoreError, Update};
use adieu_testkit::servers::{Options, Server};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::conformance::{collect, keys};
use crate::served::{config, text};

#[tokio::test]
async fn s660_a_postgres_that_cannot_be_used_is_an_error_when_it_connects() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    for port in [silent.local_addr().unwrap().port(), dead] {
        let began = Instant::now();
        let error = Postgres::connect(&config(port), "shop").await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{}", text(&error));
        assert!(text(&error).starts_with("postgres failed to connect: "), "{}", text(&error));
        assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    }
    let server = Server::postgres();
    let unknown = config(server.port()).replace("dbname=postgres", "dbname=none");
    for (config, table) in [(&*unknown, "shop"), (&*config(server.port()), ""), ("no config", "t")]
    {
        let error = Postgres::connect(config, table).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    }
}

#[tokio::test]
async fn s661_postgres_behind_a_pooler_is_refused() {
    let server = Server::postgres();
    for mode in ["transaction", "session"] {
        let pooler = Server::pgbouncer(&server, mode);
        let error = Postgres::connect(&config(pooler.port()), "shop").await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
        assert!(text(&error).contains("there is a pooler in between"), "{}", text(&error));
        assert!(text(&error).ends_with("Connect to the server itself"), "{}", text(&error));
    }
}

#[tokio::test]
async fn s662_processes_that_start_together_create_the_tables_once() {
    let server = Server::postgres();
    let mut starting = JoinSet::new();
    for n in 0..8 {
        let config = config(server.port());
        starting.spawn(async move {
            let postgres = Postgres::connect(&config, "shop").await.unwrap();
            let commit = Commit::new().create(format!("n/{n}"), "");
            assert!(matches!(postgres.commit(&commit).await.unwrap(), Committed::Done(_)));
        });
    }
    while let Some(started) = starting.join_next().await {
        started.unwrap();
    }
    let postgres = Postgres::connect(&config(server.port()), "shop").await.unwrap();
    let snapshot = postgres.load("").await.unwrap();
    assert_eq!((snapshot.records.len(), snapshot.revision.get()), (8, 8), "without gaps");
}

#[tokio::test]
async fn s663_tables_in_one_database_do_not_see_each_other() {
    let server = Server::postgres();
    let [shop, bank] = ["shop", "bank"].map(|table| {
        let config = config(server.port());
        async move { Postgres::connect(&config, table).await.unwrap() }
    });
    let (shop, bank) = (shop.await, bank.await);
    let session = shop.open(Duration::from_secs(60)).await.unwrap();
    let commit = Commit::new().create_under("a", "shop", session.id);
    let Committed::Done(shops) = shop.commit(&commit).await.unwrap() else { panic!() };
    // A session of one table is unknown in the other.
    let error = bank.commit(&commit).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSession { .. }), "{}", text(&error));
    bank.close(&session).await.unwrap();
    let commit = Commit::new().create("a", "bank");
    let Committed::Done(banks) = bank.commit(&commit).await.unwrap() else { panic!() };
    assert_eq!((shops.get(), banks.get()), (1, 1), "revisions of their own");
    assert_eq!(&*shop.load("").await.unwrap().records[0].value, "shop");
    assert_eq!(&*bank.load("").await.unwrap().records[0].value, "bank");
}

#[tokio::test]
async fn s667_a_commit_survives_a_crash_of_a_server_that_defers_its_disk() {
    // A database whose settings would break the store, if it did not set its own.
    let settings = ["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s"];
    let isolation = ["-c", "default_transaction_isolation=serializable"];
    let mut server = Server::postgres_with(Options::new().args(settings).args(isolation));
    let mut racing = JoinSet::new();
    for n in 0..4 {
        let config = config(server.port());
        racing.spawn(async move {
            let postgres = Postgres::connect(&config, "shop").await.unwrap();
            for round in 0..20 {
                let commit = Commit::new().create(format!("n/{n}/{round}"), "");
                assert!(matches!(postgres.commit(&commit).await.unwrap(), Committed::Done(_)));
            }
        });
    }
    while let Some(committed) = racing.join_next().await {
        committed.unwrap();
    }
    server.kill();
    server.start();
    let postgres = Postgres::connect(&config(server.port()), "shop").await.unwrap();
    assert_eq!(postgres.load("").await.unwrap().records.len(), 80);
}

#[tokio::test]
async fn s668_a_commit_wakes_readers_of_other_processes() {
    let server = Server::postgres();
    let reader = Postgres::connect(&config(server.port()), "shop").await.unwrap();
    let writer = Postgres::connect(&config(server.port()), "shop").await.unwrap();
    let mut changes = reader.changes("", Revision::new(0)).await.unwrap();
    let began = Instant::now();
    for n in 0..10 {
        let commit = Commit::new().create(format!("n/{n}"), "");
        assert!(matches!(writer.commit(&commit).await.unwrap(), Committed::Done(_)));
        assert_eq!(keys(&collect(&mut *changes, 1).await), [format!("n/{n}")]);
    }
    // Without notifications, each change would be seen at the next poll, up to a second later.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn s669_postgres_deletes_the_changes_of_old_revisions() {
    let server = Server::postgres();
    let postgres = Postgres::connect(&config(server.port()), "shop").await.unwrap();
    let create = |n: u32| Commit::new().create(format!("n/{n}"), "");
    for n in 0..3 {
        assert!(matches!(postgres.commit(&create(n)).await.unwrap(), Committed::Done(_)));
    }
    let (client, connection) =
        tokio_postgres::connect(&config(server.port()), tokio_postgres::NoTls).await.unwrap();
    let mut driving = JoinSet::new();
    driving.spawn(async move { drop(connection.await) });
    // As if thousands of commits had happened since.
    client.batch_execute("UPDATE adieu_cluster_tables SET revision = 4197").await.unwrap();
    for n in 3..33 {
        assert!(matches!(postgres.commit(&create(n)).await.unwrap(), Committed::Done(_)));
    }
    let count = "SELECT count(*), min(revision) FROM adieu_cluster_changes";
    let row = client.query_one(count, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (30, 4_198));
    // The last deletion was at 4,224.
    for (after, is_deleted) in [(127, true), (128, false)] {
        let mut changes = postgres.changes("", Revision::new(after)).await.unwrap();
        let update = changes.next().await.unwrap();
        assert_eq!(matches!(update, Update::Compacted), is_deleted, "{after}: {update:?}");
    }
    assert_eq!(postgres.load("").await.unwrap().records.len(), 33, "records stay");
}
