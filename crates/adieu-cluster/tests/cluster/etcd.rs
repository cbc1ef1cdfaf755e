//! Tests that only the store in etcd needs: tokens, time to live, members.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use adieu_cluster::store::etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use adieu_cluster::store::{Commit, Committed, Etcd, Session, Standing, Store, StoreError};
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::Server;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::conformance::{collect, keys};
use crate::served::{Kind, text, url};

/// Runs each test on both versions of etcd.
macro_rules! on_both {
    ($($test:ident,)*) => {
        mod installed {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::served::Kind::EtcdInstalled).await;
            })*
        }
        mod current {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::served::Kind::EtcdCurrent).await;
            })*
        }
    };
}

on_both! {
    s658_a_token_that_has_expired_is_replaced,
    s658_a_token_from_before_a_change_of_users_is_replaced,
    s659_a_session_below_the_least_time_to_live_is_refused,
    s660_a_wrong_password_is_refused_when_it_connects,
    s657_a_member_without_a_majority_is_noticed,
    s666_the_next_member_is_used_when_one_fails,
    s666_a_session_survives_the_member_that_it_was_opened_at,
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

async fn s658_a_token_that_has_expired_is_replaced(kind: Kind) {
    let server = kind.etcd(&["--auth-token-ttl", "1"]);
    require_users(&server).await;
    let etcd = connect_as(&server, "shop", "password").await.unwrap();
    let session = etcd.open(Duration::from_secs(60)).await.unwrap();
    let prefix = "adieu/cluster/shop/";
    let create = |n: u32| Commit::new().create_under(format!("{prefix}{n}"), "", session.id);
    let Committed::Done(first) = etcd.commit(&create(0)).await.unwrap() else { panic!() };
    let mut live = etcd.changes(prefix, first).await.unwrap();

    // Each request is the first one after the token has expired: after one second, plus up to one
    // second until etcd notices.
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

    // The watch that was open all the time has missed nothing.
    assert_eq!(collect(&mut *live, 3).await.len(), 3);
    assert_eq!(collect(&mut *late, 2).await.len(), 2);

    // A user without the permission is refused, with another error than an unknown user.
    let error = etcd.load("adieu/cluster/other/").await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    let error = etcd.changes("adieu/cluster/other/", first).await.err().unwrap();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    let error = etcd.commit(&Commit::new().create("adieu/other", "")).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
}

async fn s658_a_token_from_before_a_change_of_users_is_replaced(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "a key that is shared by all members").unwrap();
    // Tokens that carry the revision of the users, and are refused when it has changed.
    let jwt = format!("jwt,sign-method=HS256,ttl=10m,priv-key={}", key.display());
    let server = kind.etcd(&["--auth-token", &jwt]);
    require_users(&server).await;
    let etcd = connect_as(&server, "shop", "password").await.unwrap();
    let create = |n: u32| Commit::new().create(format!("adieu/cluster/shop/{n}"), "");
    assert!(matches!(etcd.commit(&create(1)).await.unwrap(), Committed::Done(_)));

    let options = ConnectOptions::new().with_user("root", "secret");
    let mut root = Client::connect([url(server.port())], Some(options)).await.unwrap();
    root.role_add("another").await.unwrap();
    let error = etcd.commit(&create(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{}", text(&error));
    assert!(matches!(etcd.commit(&create(2)).await.unwrap(), Committed::Done(_)));
}

async fn s659_a_session_below_the_least_time_to_live_is_refused(kind: Kind) {
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

async fn s660_a_wrong_password_is_refused_when_it_connects(kind: Kind) {
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
    let refused = "tcp connect error: Connection refused (os error 111)";
    for (port, why) in
        [(silent.local_addr().unwrap().port(), "no answer within 5s"), (dead, refused)]
    {
        let began = Instant::now();
        let error = Etcd::connect(&[url(port)]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{}", text(&error));
        assert_eq!(text(&error), format!("etcd failed to connect: {}: {why}", url(port)));
        assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    }
    for endpoints in [&["http://not an address"][..], &[]] {
        let error = Etcd::connect(endpoints).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    }
}

async fn s666_the_next_member_is_used_when_one_fails(kind: Kind) {
    let server = kind.etcd(&[]);
    // Two addresses of one member: the test checks which of them is used.
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

/// Waits until a session is kept again.
async fn until_kept(etcd: &Etcd, session: &Session) {
    let keeping = async {
        loop {
            let second = Duration::from_secs(1);
            if let Ok(Ok(standing)) = timeout(second, etcd.keep(session)).await {
                return standing;
            }
        }
    };
    let standing = timeout(Duration::from_secs(10), keeping).await.unwrap();
    assert_eq!(standing, Standing::Kept);
}

async fn s666_a_session_survives_the_member_that_it_was_opened_at(kind: Kind) {
    let mut members = Members::start(kind).await;
    let etcd = Etcd::connect(&members.urls()).await.unwrap();
    let session = etcd.open(Duration::from_secs(20)).await.unwrap();
    let commit = Commit::new().create_under("n/1", "", session.id);
    let Committed::Done(created) = etcd.commit(&commit).await.unwrap() else { panic!() };
    let mut changes = etcd.changes("n/", created).await.unwrap();
    // The first member is in use.
    members.kill(0);
    assert!(timeout(Duration::from_secs(5), changes.next()).await.unwrap().is_err());
    until_kept(&etcd, &session).await;
    let commit = Commit::new().create("n/2", "");
    assert!(matches!(etcd.commit(&commit).await.unwrap(), Committed::Done(_)));
    let mut changes = etcd.changes("n/", created).await.unwrap();
    assert_eq!(keys(&collect(&mut *changes, 1).await), ["n/2"]);
}

async fn s657_a_member_without_a_majority_is_noticed(kind: Kind) {
    let mut members = Members::start(kind).await;
    let first = &members.urls()[..1];
    let etcd = Etcd::connect(first).await.unwrap();
    let session = etcd.open(Duration::from_secs(60)).await.unwrap();
    let create = |n: u32| Commit::new().create_under(format!("n/{n}"), "", session.id);
    let Committed::Done(created) = etcd.commit(&create(1)).await.unwrap() else { panic!() };
    let mut changes = etcd.changes("n/", created).await.unwrap();
    members.kill(1);
    members.kill(2);
    // The connection works, but its member is cut off from the cluster.
    let failed = timeout(Duration::from_secs(10), changes.next()).await.unwrap().unwrap_err();
    assert!(matches!(failed, StoreError::Unavailable { .. }), "{}", text(&failed));
    for failed in [
        etcd.commit(&create(2)).await.unwrap_err(),
        etcd.load("n/").await.unwrap_err(),
        etcd.keep(&session).await.unwrap_err(),
        etcd.changes("n/", created).await.err().unwrap(),
        Etcd::connect(first).await.unwrap_err(),
    ] {
        assert!(failed.may_pass(), "{}", text(&failed));
    }
    members.spawn(1);
    until_kept(&etcd, &session).await;
    assert_eq!(etcd.load("n/").await.unwrap().records.len(), 1, "nothing was committed alone");
}

/// A cluster of three etcd members.
struct Members {
    program: PathBuf,
    folder: tempfile::TempDir,
    /// The ports for clients and for peers.
    ports: [(u16, u16); 3],
    children: [Option<Child>; 3],
}

impl Members {
    async fn start(kind: Kind) -> Self {
        let port = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let ports = [(); 3].map(|()| (port(), port()));
        let (program, folder) = (kind.program(), tempfile::tempdir().unwrap());
        let mut members = Self { program, folder, ports, children: [None, None, None] };
        (0..3).for_each(|member| members.spawn(member));
        let until_up = async {
            for url in members.urls() {
                while Etcd::connect(&[&url]).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        timeout(Duration::from_secs(30), until_up).await.unwrap();
        members
    }

    fn urls(&self) -> [String; 3] {
        self.ports.map(|(port, _)| url(port))
    }

    fn spawn(&mut self, member: usize) {
        let (client, peer) = self.ports[member];
        let all = self.ports.iter().enumerate().map(|(n, (_, peer))| format!("{n}={}", url(*peer)));
        let log = std::fs::File::create(self.folder.path().join(format!("{member}.log"))).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .args(["--name", &member.to_string(), "--data-dir"])
            .arg(self.folder.path().join(member.to_string()))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children[member] = Some(child);
    }

    fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.children[member].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..3).for_each(|member| self.kill(member));
    }
}
