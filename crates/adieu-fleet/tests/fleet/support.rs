//! Helpers that several test modules share.

use std::time::Duration;

use adieu_core::{Config, Deadline, Shutdown};
use adieu_fleet::{Attempt, Claim, Holder, Key, Lock, LockBackend, LockSpec, Owner};
use adieu_testkit::servers::Server;

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn by(seconds: u64) -> Deadline {
    Deadline::after(secs(seconds))
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// Creates the lock `key` of this replica.
pub(crate) fn lock(locks: impl LockBackend, key: &str, ttl: Duration, replica: &str) -> Lock {
    Lock::new(locks, LockSpec::new(key).ttl(ttl), &owner(replica)).unwrap()
}

pub(crate) fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

/// Expects that the lock was granted.
#[track_caller]
pub(crate) fn granted(attempt: Attempt) -> Claim {
    match attempt {
        Attempt::Acquired(claim) => claim,
        Attempt::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// Expects that the lock is held.
#[track_caller]
pub(crate) fn refused(attempt: Attempt) -> Holder {
    match attempt {
        Attempt::Held(holder) => holder,
        Attempt::Acquired(claim) => panic!("granted: {claim:?}"),
    }
}

pub(crate) fn redis_url(server: &Server) -> String {
    format!("redis://{}/", server.address())
}

pub(crate) fn etcd_urls(server: &Server) -> [String; 1] {
    [format!("http://{}", server.address())]
}

pub(crate) fn postgres_config(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
}

/// Connects to a Postgres server. The connection lives as long as the second value.
pub(crate) async fn postgres_client(
    server: &Server,
) -> (tokio_postgres::Client, tokio::task::JoinSet<()>) {
    let config = postgres_config(server.port());
    let (client, connection) =
        tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
    let mut driving = tokio::task::JoinSet::new();
    driving.spawn(async { drop(connection.await) });
    (client, driving)
}
