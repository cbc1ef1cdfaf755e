//! Peers that are rejected.

use std::path::Path;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::stage::{Ledger, Node, identity, limits, pair, peer};
use crate::link::{Identity, ListenError, Mtls, Security};
use crate::transport::Event;

/// Sends one envelope, which must be returned, and returns why.
async fn refused(from: &Node, to: &Node) -> String {
    let ledger = Ledger::default();
    let id = from.send(&to.peer, &to.address(), &ledger, Bytes::new());
    ledger.settled().await;
    let events = ledger.of(id);
    assert_eq!(to.shop.count(), 0, "a stranger's envelope was read");
    match &events[..] {
        [Event::Returned(why)] => why.clone(),
        other => panic!("{other:?}"),
    }
}

async fn accepted(from: &Node, to: &Node) {
    let ledger = Ledger::default();
    from.send(&to.peer, &to.address(), &ledger, Bytes::new());
    ledger.settled().await;
    assert_eq!(ledger.finals(), (1, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1228_only_members_may_speak() {
    let (a, b) = pair();
    b.shop.forget(&a.peer);
    let why = refused(&a, &b).await;
    assert!(why.contains("incarnation 5 of node a is not a member"), "{why}");

    // An older incarnation of a node that is a member.
    b.shop.learn(&peer("a", 6));
    let why = refused(&a, &b).await;
    assert!(why.contains("incarnation 5 of node a is not a member"), "{why}");

    // A view that is behind catches up.
    let ledger = Ledger::default();
    a.send(&b.peer, &b.address(), &ledger, Bytes::new());
    tokio::time::sleep(limits().unknown_peer / 6).await;
    b.shop.learn(&a.peer);
    ledger.settled().await;
    assert_eq!(ledger.finals(), (1, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1228_nodes_of_another_cluster_or_protocol_are_refused() {
    let b = Node::start("b", 7);
    let me = peer("a", 5);
    b.shop.learn(&me);
    let open = Security::loopback_only;
    let start =
        |identity: Identity| Node::at("127.0.0.1:0", &me, identity, open(), limits()).unwrap();
    let other = start(Identity { cluster: "other".into(), ..identity(&me) });
    let why = refused(&other, &b).await;
    assert!(why.contains("this node is in cluster shop, not in \"other\""), "{why}");
    let newer = start(Identity { protocol: (2, 4), ..identity(&me) });
    let why = refused(&newer, &b).await;
    assert!(why.contains("supports the protocols 1 to 1, and the caller 2 to 4"), "{why}");
    let both = start(Identity { protocol: (1, 4), ..identity(&me) });
    accepted(&both, &b).await;
    // Another node has the address.
    let ledger = Ledger::default();
    let id = both.send(&peer("c", 7), &b.address(), &ledger, Bytes::new());
    ledger.settled().await;
    let [Event::Returned(why)] = &ledger.of(id)[..] else { panic!() };
    assert!(why.contains("this is node b, not \"c\""), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1229_peers_without_the_token_are_refused() {
    let token = |text: &str| Security::token(text).unwrap();
    let b = Node::with("b", 7, token("0123456789abcdef"), limits());
    b.shop.learn(&peer("a", 5));
    for stranger in [token("0123456789abcdeX"), Security::loopback_only()] {
        let a = Node::with("a", 5, stranger, limits());
        let why = refused(&a, &b).await;
        assert!(why.contains("the token is missing or is not the one of this cluster"), "{why}");
    }
    accepted(&Node::with("a", 5, token("0123456789abcdef"), limits()), &b).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1229_listening_or_dialling_beyond_this_machine_needs_a_proof() {
    let me = peer("a", 5);
    let at = |address: &str, security| {
        Node::at(address, &me, identity(&me), security, limits()).map(|_| ())
    };
    let error = at("0.0.0.0:0", Security::loopback_only()).unwrap_err();
    assert!(matches!(error, ListenError::Unprotected { .. }));
    assert!(error.to_string().contains("certificates (Security::mtls) or a token"), "{error}");
    at("0.0.0.0:0", Security::token("0123456789abcdef").unwrap()).unwrap();
    let error = at("localhost", Security::loopback_only()).unwrap_err().to_string();
    assert!(error.contains("\"localhost\" is not an address"), "{error}");

    let a = Node::start("a", 5);
    let ledger = Ledger::default();
    // An address for documentation: nothing answers there.
    let id = a.send(&peer("b", 7), "192.0.2.1:7070", &ledger, Bytes::new());
    ledger.settled().await;
    let [Event::Returned(why)] = &ledger.of(id)[..] else { panic!() };
    assert!(why.contains("certificates or a token are required"), "{why}");
}

/// Writes a certificate for 127.0.0.1 that this authority has signed.
fn certify(dir: &Path, authority: &Issuer<'_, KeyPair>, ca: &str, names: &[&str]) {
    let key = KeyPair::generate().unwrap();
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("ca.pem"), ca).unwrap();
    std::fs::write(dir.join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
}

fn authority() -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1229_peers_without_a_certificate_of_the_authority_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = |name: &str| folder.path().join(name);
    let ((ours, our_ca), (theirs, their_ca)) = (authority(), authority());
    certify(&dir("a"), &ours, &our_ca, &["127.0.0.1"]);
    certify(&dir("b"), &ours, &our_ca, &["127.0.0.1"]);
    certify(&dir("stranger"), &theirs, &their_ca, &["127.0.0.1"]);
    // Trusts our authority, but its own certificate is of another.
    certify(&dir("spy"), &theirs, &our_ca, &["127.0.0.1"]);
    certify(&dir("named"), &ours, &our_ca, &["nodes.shop"]);
    let node = |name: &str, incarnation, files: &str| {
        Node::with(name, incarnation, Security::mtls(Mtls::dir(dir(files))), limits())
    };
    let b = node("b", 7, "b");
    b.shop.learn(&peer("a", 5));
    accepted(&node("a", 5, "a"), &b).await;
    for (stranger, security) in [
        ("another authority", Security::mtls(Mtls::dir(dir("stranger")))),
        ("a certificate of another authority", Security::mtls(Mtls::dir(dir("spy")))),
        ("no TLS", Security::loopback_only()),
        ("a token and no TLS", Security::token("0123456789abcdef").unwrap()),
    ] {
        let a = Node::with("a", 5, security, limits());
        let b = node("b", 7, "b");
        b.shop.learn(&a.peer);
        let why = refused(&a, &b).await;
        assert!(why.contains("node b at 127.0.0.1"), "{stranger}: {why}");
    }
    // A node that dials checks the certificate, too: by the address, or by a name that all share.
    let named = node("b", 7, "named");
    named.shop.learn(&peer("a", 5));
    let why = refused(&node("a", 5, "a"), &named).await;
    assert!(why.contains("certificate"), "{why}");
    let by_name = Security::mtls(Mtls::dir(dir("a")).server_name("nodes.shop"));
    accepted(&Node::with("a", 5, by_name, limits()), &named).await;

    std::fs::write(dir("a").join("key.pem"), "not a key").unwrap();
    let me = peer("a", 5);
    let broken = Security::mtls(Mtls::dir(dir("a")));
    let error = Node::at("127.0.0.1:0", &me, identity(&me), broken, limits()).map(|_| ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
}
