//! The arrival and the order of envelopes, and the limit of those on their way.

use bytes::Bytes;

use super::stage::{Ledger, Manner, Node, PATIENCE, limits, pair, shard, until};
use crate::link::{Limits, Security};
use crate::time::Duration;
use crate::transport::{Event, Full, Refusal, Reply, Transport};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1207_an_ask_is_admitted_and_answered_and_arrives_as_it_was_sent() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    let id = a.send(&b.peer, &b.address(), &ledger, Bytes::from_static(b"hello"));
    ledger.settled().await;
    let reply = Reply::Done(Bytes::from_static(b"hello"));
    assert_eq!(ledger.of(id), [Event::Admitted, Event::Replied(reply)]);
    let envelope = b.shop.envelopes.lock().unwrap()[0].clone();
    assert_eq!(envelope.shard, shard());
    assert_eq!((envelope.epoch.get(), &*envelope.entity), (3, "cart-17"));
    assert_eq!((envelope.id.incarnation, envelope.id.sequence), (a.peer.incarnation, id));
    assert!(envelope.is_ask && !envelope.is_nested);
    let remaining = envelope.deadline - crate::time::now();
    assert!(remaining <= PATIENCE && remaining > PATIENCE / 2, "{remaining:?}");
    a.links.close().await;
    b.links.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1208_answers_that_are_dropped_refuse_before_admission_and_are_unknown_after_it() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    let ask = |manner| {
        b.shop.behave(manner);
        let id = a.send(&b.peer, &b.address(), &ledger, Bytes::new());
        let ledger = ledger.clone();
        async move {
            ledger.settled().await;
            ledger.of(id)
        }
    };
    let moving = Refusal::Moving { newer: None };
    assert_eq!(ask(Manner::Drop).await, [Event::Refused(moving)]);
    let events = ask(Manner::AdmitAndDrop).await;
    assert!(
        matches!(&events[..], [Event::Admitted, Event::Replied(Reply::Unknown(_))]),
        "{events:?}"
    );
    let events = ask(Manner::Refuse).await;
    let Event::Refused(Refusal::Moving { newer: Some((node, epoch)) }) = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!((node, epoch.get()), (&super::stage::peer("c", 8), 9));
    // A tell ends with its admission.
    b.shop.behave(Manner::Admit);
    let tell = a.try_send(&b.peer, &b.address(), &ledger, Bytes::new(), false).unwrap();
    ledger.settled().await;
    assert_eq!(ledger.of(tell), [Event::Admitted]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1209_envelopes_of_one_peer_arrive_in_the_order_in_which_they_were_sent() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    let mut sent = 0;
    while sent < 20_000 {
        let payload = Bytes::from(vec![7; sent % 900]);
        match a.try_send(&b.peer, &b.address(), &ledger, payload, sent % 3 == 0) {
            Ok(_) => sent += 1,
            Err(Full(_)) => tokio::task::yield_now().await,
        }
    }
    ledger.settled().await;
    ledger.judge(&b.shop);
    assert_eq!(ledger.finals(), (20_000, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1210_a_message_of_100_mb_is_refused_at_the_sender_and_the_link_stays() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    a.send(&b.peer, &b.address(), &ledger, Bytes::from_static(b"before"));
    let long = a.send(&b.peer, &b.address(), &ledger, Bytes::from(vec![0; 100_000_000]));
    let longest = Bytes::from(vec![1; 4 * 1024 * 1024 - "cart-17".len()]);
    let fits = a.send(&b.peer, &b.address(), &ledger, longest.clone());
    ledger.settled().await;
    let [Event::Refused(Refusal::Unsupported(text))] = &ledger.of(long)[..] else {
        panic!("{:?}", ledger.of(long))
    };
    assert_eq!(text, "message of 100000007 bytes exceeds the limit of 4194304 bytes");
    assert_eq!(ledger.of(fits)[1], Event::Replied(Reply::Done(longest)));
    assert_eq!(ledger.finals(), (2, 1, 0, 0));
    ledger.judge(&b.shop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1211_a_reply_over_the_limit_is_unknown_and_the_link_stays() {
    let small = Limits { message: 1_000, ..limits() };
    let a = Node::start("a", 5);
    let b = Node::with("b", 7, Security::loopback_only(), small);
    b.knows(&a);
    let ledger = Ledger::default();
    let long = a.send(&b.peer, &b.address(), &ledger, Bytes::from(vec![0; 1_001]));
    let fits = a.send(&b.peer, &b.address(), &ledger, Bytes::from(vec![0; 1_000]));
    ledger.settled().await;
    let [Event::Admitted, Event::Replied(Reply::Unknown(text))] = &ledger.of(long)[..] else {
        panic!("{:?}", ledger.of(long))
    };
    assert_eq!(text, "reply of 1001 bytes exceeds the limit of 1000 bytes");
    assert!(matches!(&ledger.of(fits)[1], Event::Replied(Reply::Done(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1212_a_receiver_that_does_not_decide_makes_the_sender_wait_and_holds_up_no_other_peer() {
    let (a, b) = pair();
    let c = Node::start("c", 9);
    c.knows(&a);
    b.shop.behave(Manner::Hold);
    let ledger = Ledger::default();
    let full = loop {
        match a.try_send(&b.peer, &b.address(), &ledger, Bytes::from_static(b"x"), true) {
            Ok(_) => {}
            Err(full) => break full,
        }
    };
    assert_eq!(&full.0.payload[..], b"x", "the envelope is given back");
    assert_eq!(ledger.open(), 4_096);
    until("all to be read", || b.shop.held() == 4_096).await;
    let other = Ledger::default();
    a.send(&c.peer, &c.address(), &other, Bytes::new());
    other.settled().await;
    b.shop.release();
    ledger.settled().await;
    a.send(&b.peer, &b.address(), &ledger, Bytes::new());
    b.shop.behave(Manner::Echo);
    until("the last", || b.shop.count() == 4_097).await;
    b.shop.release();
    ledger.settled().await;
    ledger.judge(&b.shop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1213_two_nodes_that_dial_each_other_at_the_same_instant_lose_nothing() {
    for _ in 0..20 {
        let (a, b) = pair();
        let (to_b, to_a) = (Ledger::default(), Ledger::default());
        let ask = async |from: &Node, to: &Node, ledger: &Ledger| {
            for _ in 0..50 {
                from.send(&to.peer, &to.address(), ledger, Bytes::from_static(b"x"));
                tokio::task::yield_now().await;
            }
            ledger.settled().await;
        };
        tokio::join!(ask(&a, &b, &to_b), ask(&b, &a, &to_a));
        assert_eq!((to_a.finals(), to_b.finals()), ((50, 0, 0, 0), (50, 0, 0, 0)));
        to_b.judge(&b.shop);
        to_a.judge(&a.shop);
        tokio::join!(a.links.close(), b.links.close());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_prepares_or_declines() {
    let (a, b) = pair();
    let mut other = shard();
    assert_eq!(a.links.prepare(&b.peer, &b.address(), &other).await, Ok(()));
    other.number = 4;
    let declined = a.links.prepare(&b.peer, &b.address(), &other).await;
    assert_eq!(declined, Err("shard 4 is not for a".to_owned()));
    let address = b.address();
    b.links.close().await;
    let failed = a.links.prepare(&b.peer, &address, &shard()).await.unwrap_err();
    assert!(failed.contains("node b") || failed.contains("closed"), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1215_an_envelope_whose_deadline_passes_before_it_is_sent_is_returned_then() {
    let a = Node::start("a", 5);
    // Accepts connections and never speaks.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let b = super::stage::peer("b", 7);
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let mut sender = Some(sender);
    let envelope = crate::transport::Envelope {
        shard: shard(),
        epoch: crate::store::Revision::new(3),
        entity: "cart-17".into(),
        id: crate::transport::MessageId { incarnation: a.peer.incarnation, sequence: 1 },
        is_ask: true,
        is_nested: false,
        is_request: false,
        deadline: crate::time::now() + Duration::from_millis(200),
        payload: Bytes::new(),
        ticket: crate::transport::Ticket::default(),
    };
    let on_event = Box::new(move |event| sender.take().unwrap().send(event).unwrap());
    a.links.send(&b, &address, envelope, on_event).unwrap();
    let event = tokio::time::timeout(Duration::from_secs(5), receiver).await.unwrap().unwrap();
    let Event::Returned(why) = event else { panic!("{event:?}") };
    assert!(why.contains("deadline"), "{why}");
}
