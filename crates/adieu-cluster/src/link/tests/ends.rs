//! How links end: in order, by a cut, because they are idle, or because a newer one takes over.

use std::net::SocketAddr;

use adieu_testkit::proxy::Proxy;
use bytes::Bytes;

use super::stage::{Ledger, Manner, Node, identity, limits, pair, peer, until};
use crate::link::{Limits, Security};
use crate::time::{Duration, now};
use crate::transport::{Event, Full, Transport};

/// Sends as fast as the link takes envelopes, until all that were wanted are sent.
async fn flood(from: &Node, to: &Node, address: &str, ledger: &Ledger, count: usize) {
    let mut sent = 0;
    while sent < count {
        let payload = Bytes::from(vec![7; 300]);
        match from.try_send(&to.peer, address, ledger, payload, sent % 4 != 0) {
            Ok(_) => sent += 1,
            Err(Full(_)) => tokio::time::sleep(Duration::from_micros(200)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1216_a_peer_that_closes_under_load_loses_nothing() {
    let mut all_returned = 0;
    for round in 0..20 {
        let (a, b) = pair();
        let address = b.address();
        let ledger = Ledger::default();
        let close = async {
            until("the first envelopes", || b.shop.count() > round * 40).await;
            b.links.close().await;
        };
        tokio::join!(flood(&a, &b, &address, &ledger, 4_000), close);
        ledger.settled().await;
        ledger.judge(&b.shop);
        let (answered, refused, returned, lost) = ledger.finals();
        assert_eq!((answered + returned, refused, lost), (4_000, 0, 0), "round {round}");
        assert_eq!(answered, b.shop.count(), "what was read is answered");
        all_returned += returned;
        a.links.close().await;
    }
    assert!(all_returned > 0, "no envelope was on its way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1217_a_link_that_is_cut_gives_every_envelope_one_final_event() {
    let mut all_lost = 0;
    for round in 0..20 {
        let (a, b) = pair();
        let server: SocketAddr = b.address().parse().unwrap();
        let proxy = Proxy::new(server).await;
        let address = proxy.address().to_string();
        let ledger = Ledger::default();
        let cut = async {
            until("the first envelopes", || b.shop.count() > round * 50).await;
            match round % 3 {
                0 => drop(proxy),
                1 => {
                    // Requests still arrive, but no answer does.
                    proxy.cut_answers();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    drop(proxy);
                }
                _ => {
                    proxy.cut();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    drop(proxy);
                }
            }
        };
        tokio::join!(flood(&a, &b, &address, &ledger, 4_000), cut);
        ledger.settled().await;
        ledger.judge(&b.shop);
        let (answered, refused, returned, lost) = ledger.finals();
        assert_eq!((answered + returned + lost, refused), (4_000, 0));
        all_lost += lost;
        a.links.close().await;
        b.links.close().await;
    }
    assert!(all_lost > 0, "no envelope was on its way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1218_a_connection_that_falls_silent_ends_after_its_probes() {
    let quick = Limits { probe: Duration::from_millis(300), ..limits() };
    let a = Node::with("a", 5, Security::loopback_only(), quick);
    let b = Node::start("b", 7);
    b.knows(&a);
    b.shop.behave(Manner::Admit);
    let proxy = Proxy::new(b.address().parse().unwrap()).await;
    let address = proxy.address().to_string();
    let ledger = Ledger::default();
    let id = a.send(&b.peer, &address, &ledger, Bytes::new());
    until("its admission", || ledger.of(id) == [Event::Admitted]).await;
    proxy.hang();
    ledger.settled().await;
    assert!(matches!(&ledger.of(id)[..], [Event::Admitted, Event::Lost(_)]), "{:?}", ledger.of(id));
    // The next one dials again.
    b.shop.behave(Manner::Echo);
    a.send(&b.peer, &address, &ledger, Bytes::new());
    ledger.settled().await;
    assert_eq!(ledger.finals(), (1, 0, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1219_an_idle_link_is_closed_and_dialled_again_without_loss() {
    let quick = Limits { idle: Duration::from_millis(10), ..limits() };
    let a = Node::with("a", 5, Security::loopback_only(), quick);
    let b = Node::start("b", 7);
    b.knows(&a);
    let ledger = Ledger::default();
    for round in 0..300_u64 {
        a.send(&b.peer, &b.address(), &ledger, Bytes::from_static(b"x"));
        // Around the instant at which the link is closed.
        tokio::time::sleep(Duration::from_micros(9_000 + round * 20)).await;
    }
    ledger.settled().await;
    ledger.judge(&b.shop);
    assert_eq!(ledger.finals(), (300, 0, 0, 0));
    assert!(a.links.dialled() > 30, "{} links", a.links.dialled());
    until("the lane to be retired", || a.links.lanes() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_with_an_ask_that_takes_long_is_not_idle() {
    let quick = Limits { idle: Duration::from_millis(20), ..limits() };
    let a = Node::with("a", 5, Security::loopback_only(), quick);
    let b = Node::start("b", 7);
    b.knows(&a);
    b.shop.behave(Manner::Admit);
    let ledger = Ledger::default();
    a.send(&b.peer, &b.address(), &ledger, Bytes::new());
    until("its arrival", || b.shop.held() == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    b.shop.release();
    ledger.settled().await;
    assert_eq!((ledger.finals(), a.links.dialled()), ((1, 0, 0, 0), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1220_a_peer_that_restarts_under_the_same_address_is_another_peer() {
    let (a, b) = pair();
    let address = b.address();
    b.shop.behave(Manner::Hold);
    let ledger = Ledger::default();
    let old = a.send(&b.peer, &address, &ledger, Bytes::new());
    until("its arrival", || b.shop.held() == 1).await;
    let before = b.peer.clone();
    b.links.close().await;
    drop(b);
    ledger.settled().await;
    assert!(matches!(&ledger.of(old)[..], [Event::Lost(_)]), "read, and not answered");

    let after = peer("b", 8);
    let b = Node::at(&address, &after, identity(&after), Security::loopback_only(), limits());
    let b = b.unwrap();
    b.knows(&a);
    let late = a.send(&before, &address, &ledger, Bytes::new());
    let new = a.send(&after, &address, &ledger, Bytes::new());
    ledger.settled().await;
    let [Event::Returned(why)] = &ledger.of(late)[..] else { panic!("{:?}", ledger.of(late)) };
    assert!(why.contains("incarnation 8, not 7"), "{why}");
    assert!(matches!(&ledger.of(new)[..], [Event::Admitted, Event::Replied(_)]));
    assert_eq!(b.shop.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1221_a_newer_link_of_a_node_ends_the_older_one_before_anything_of_it_is_read() {
    let b = Node::start("b", 7);
    // The same node through two paths: as after a broken connection that the peer has not noticed.
    let (one, two) = (Node::start("a", 5), Node::start("a", 5));
    b.knows(&one);
    b.shop.behave(Manner::Admit);
    let ledger = Ledger::default();
    let first = one.send(&b.peer, &b.address(), &ledger, Bytes::new());
    until("its admission", || ledger.of(first) == [Event::Admitted]).await;
    // Its first link has the number 1, so this node's second link is newer.
    let stale = Ledger::default();
    two.send(&b.peer, &b.address(), &stale, Bytes::new());
    stale.settled().await;
    assert_eq!(stale.finals(), (0, 0, 1, 0), "a link with the same number is not newer");
    b.shop.behave(Manner::Echo);
    let second = two.send(&b.peer, &b.address(), &ledger, Bytes::new());
    ledger.settled().await;
    assert!(matches!(&ledger.of(first)[..], [Event::Admitted, Event::Lost(_)]));
    assert!(matches!(&ledger.of(second)[..], [Event::Admitted, Event::Replied(_)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1222_close_is_bounded_and_joins_everything_even_if_a_peer_hangs() {
    let (a, b) = pair();
    b.shop.behave(Manner::Hold);
    let proxy = Proxy::new(b.address().parse().unwrap()).await;
    let address = proxy.address().to_string();
    let ledger = Ledger::default();
    a.send(&b.peer, &address, &ledger, Bytes::new());
    until("its arrival", || b.shop.held() == 1).await;
    proxy.hang();
    let begun = now();
    tokio::join!(a.links.close(), b.links.close());
    assert!(now() - begun < Duration::from_secs(10), "{:?}", now() - begun);
    assert_eq!((a.links.tasks(), b.links.tasks()), (0, 0));
    ledger.settled().await;
    assert_eq!(ledger.finals(), (0, 0, 0, 1));
    let after = a.try_send(&b.peer, &address, &ledger, Bytes::new(), true);
    assert!(after.is_err(), "sent after close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1223_a_node_that_was_removed_cannot_speak_on_a_link_that_is_open() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    a.send(&b.peer, &b.address(), &ledger, Bytes::new());
    ledger.settled().await;
    b.shop.forget(&a.peer);
    let late = a.send(&b.peer, &b.address(), &ledger, Bytes::new());
    ledger.settled().await;
    assert!(matches!(&ledger.of(late)[..], [Event::Returned(_)]), "{:?}", ledger.of(late));
    assert_eq!(b.shop.count(), 1);
}
