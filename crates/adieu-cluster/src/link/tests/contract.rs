//! The contract that every transport is tested against.

use std::sync::{Arc, Mutex};

use adieu_testkit::proxy::Proxy;
use tokio::runtime::Handle;

use super::stage::{identity, limits, peer};
use crate::link::{Links, Security};
use crate::transport::conformance::{self, Owner, Pair};
use crate::transport::{Carrier, Peer};

fn start(peer: &Peer, owner: &Arc<Owner>) -> Links {
    let security = Security::loopback_only();
    let links = Links::listen("127.0.0.1:0", security, identity(peer), limits()).unwrap();
    Carrier::start(&links, peer, &Handle::current(), Arc::clone(owner) as _);
    links
}

/// Two nodes, with a proxy between them that can be cut.
async fn pair() -> Pair {
    let (sender, receiver) = (peer("one", 1), peer("two", 2));
    let owner = Arc::new(Owner::default());
    let (sends, receives) = (start(&sender, &Arc::default()), start(&receiver, &owner));
    let proxy = Proxy::new(receives.address().unwrap()).await;
    let address = proxy.address().to_string();
    let proxy = Mutex::new(Some(proxy));
    Pair {
        sender: Arc::new(sends).into_transport(),
        receiver: Arc::new(receives).into_transport(),
        to: receiver,
        address,
        owner,
        cut: Box::new(move || drop(proxy.lock().unwrap().take())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1154_links_over_sockets_keep_the_contract_of_a_transport() {
    conformance::run(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1600_over_sockets_nothing_overtakes_what_an_ended_link_returns() {
    conformance::nothing_overtakes_what_an_ended_link_returns(pair().await).await;
}
