//! The store in etcd alone.

use std::time::Duration;

use adieu_cluster::store::etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use adieu_cluster::store::{Commit, Committed, Etcd, Standing, Store, StoreError};
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::Server;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::conformance::{collect, keys};
use crate::served::{Kind, text, url};

/// Runs each test on both versions of etcd.
macro_rules! on_both {
    ($($test:ident: $run:ident,)*) => {
        mod installed {
            $(#[tokio::test]
            async fn $test() {
                super::$run(crate::served::Kind::EtcdInstalled).await;
            })*
        }
        mod current {
            $(#[tokio::test]
            async fn $test() {
                super::$run(crate::served::Kind::EtcdCurrent).await;
            })*
        }
    };
}

on_both! {
    s658_a_token_that_has_expired_is_replaced: expired_token,
    s659_a_session_below_the_least_time_to_live_is_refused: least_ttl,
    s660_a_wrong_password_is_refused_when_it_connects: wrong_password,
    s666_the_next_member_is_used_when_one_fails: next_member,
}

/// Makes a root, and a user that may use one cluster only; then requires authentication.
async fn require_users(server: &Server) {
    let mut client = Client::connect([url(server.port())], None).await.unwrap();
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("shop", "password", None).await.unwrap();
    client.role_add("shop").await.unwrap();
    let shop = Permission::new(PermissionType::Readwrite, "adieu/cluster/shop/").with_prefix();
    client.role_grant_permission("shop", shop).await.unwrap();
    client.user_grant_role("shop", "shop").await.unwrap();
    client.auth_enable().await.unwrap();
}

async fn connect_as(server: &Server, name: &str, password: &str) -> Result<Etcd, StoreError> {
    let options = ConnectOptions::new().with_user(name, password);
    Etcd::connect_with(&[url(server.port())], options).await
}

async fn expired_token(kind: Kind) {
    let server = kind.etcd(&["--auth-token-ttl", "1"]);
    require_users(&server).await;
    let etcd = connect_as(&server, "shop", "password").await.unwrap();
    let session = etcd.open(Duration::from_secs(60)).await.unwrap();
    let prefix = "adieu/cluster/shop/";
    let create = |n: u32| Commit::new().create_under(format!("{prefix}{n}"), "", session.id);
    let Committed::Done(first) = etcd.commit(&create(0)).await.unwrap() else { panic!() };
    let mut live = etcd.changes(prefix, first).await.unwrap();

    // Each is the first to use a token that has expired meanwhile: a second, and up to one until
    // etcd notices.
    let expired = || tokio::time::sleep(Duration::from_millis(2_500));
    expired().await;
    assert_eq!(etcd.keep(&session).await.unwrap(), Standing::Kept);
    expired().await;
    assert!(matches!(etcd.commit(&create(1)).await.unwrap(), Committed::Done(_)));
    expired().await;
    assert_eq!(etcd.load(prefix).await.unwrap().records.len(), 2);
    expired().await;
    let mut late = etcd.changes(prefix, first).await.unwrap();
    assert_eq!(keys(&collect(&mut *late, 1).await), [format!("{prefix}1")]);
    expired().await;
    etcd.close(&session).await.unwrap();

    // The watch that was there all the time has missed nothing.
    assert_eq!(collect(&mut *live, 3).await.len(), 3);
    assert_eq!(collect(&mut *late, 2).await.len(), 2);

    // A user that may not is refused, and not as somebody unknown.
    let error = etcd.load("adieu/cluster/other/").await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    let error = etcd.changes("adieu/cluster/other/", first).await.err().unwrap();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    let error = etcd.commit(&Commit::new().create("adieu/other", "")).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
}

async fn least_ttl(kind: Kind) {
    for (election, least) in [("1000", 2), ("3000", 5)] {
        let server = kind.etcd(&["--heartbeat-interval", "100", "--election-timeout", election]);
        let etcd = Etcd::connect(&[url(server.port())]).await.unwrap();
        let least = Duration::from_secs(least);
        assert_eq!(etcd.shortest_ttl(), least);
        let error = etcd.open(least - Duration::from_millis(1)).await.unwrap_err();
        let StoreError::TtlTooShort { shortest, .. } = error else { panic!("{error}") };
        assert_eq!(shortest, least);
        let mut client = Client::connect([url(server.port())], None).await.unwrap();
        assert_eq!(client.leases().await.unwrap().leases().len(), 0, "nothing is left behind");
        assert_eq!(etcd.open(least).await.unwrap().ttl, least);
        let more = etcd.open(least + Duration::from_millis(1)).await.unwrap().ttl;
        assert_eq!(more, least + Duration::from_secs(1), "whole seconds");
    }
}

async fn wrong_password(kind: Kind) {
    let server = kind.etcd(&[]);
    let error = connect_as(&server, "shop", "password").await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    assert!(text(&error).contains("authentication is not enabled"), "{}", text(&error));
    require_users(&server).await;
    connect_as(&server, "shop", "password").await.unwrap();
    for (name, password) in [("shop", "wrong"), ("nobody", "password")] {
        let error = connect_as(&server, name, password).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
        assert!(text(&error).starts_with("etcd refused to connect: "), "{}", text(&error));
    }
    let error = Etcd::connect(&[url(server.port())]).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
}

#[tokio::test]
async fn s660_an_etcd_that_cannot_be_reached_is_an_error_when_it_connects() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    for port in [silent.local_addr().unwrap().port(), dead] {
        let began = Instant::now();
        let error = Etcd::connect(&[url(port)]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{}", text(&error));
        assert!(text(&error).starts_with("etcd failed to connect: "), "{}", text(&error));
        assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    }
    for endpoints in [&["http://not an address"][..], &[]] {
        let error = Etcd::connect(endpoints).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    }
}

async fn next_member(kind: Kind) {
    let server = kind.etcd(&[]);
    // Two ways to one member: what counts is which of them is used.
    let first = Proxy::new(server.address()).await;
    let second = Proxy::new(server.address()).await;
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let endpoints = [dead, first.port(), second.port()].map(url);
    let etcd = Etcd::connect(&endpoints).await.unwrap();
    let session = etcd.open(Duration::from_secs(60)).await.unwrap();
    for _ in 0..20 {
        assert_eq!(etcd.keep(&session).await.unwrap(), Standing::Kept, "one member is used");
    }
    drop(first);
    let mut failures = 0;
    while let Err(error) = etcd.keep(&session).await {
        failures += 1;
        assert!(error.may_pass() && failures < 5, "{}", text(&error));
    }
    assert!(failures > 0, "the first was in use");
    for _ in 0..20 {
        assert_eq!(etcd.keep(&session).await.unwrap(), Standing::Kept);
    }
}
