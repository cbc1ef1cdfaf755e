//! The links inside one process against the contract of transports.

use std::sync::Arc;

use super::InProcess;
use crate::records::NodeId;
use crate::store::Revision;
use crate::time::Duration;
use crate::transport::Peer;
use crate::transport::conformance::{self, Owner, Pair};

fn peer(name: &str) -> Peer {
    Peer { id: NodeId::new(name).unwrap(), incarnation: Revision::new(1) }
}

async fn pair(delay: Duration) -> Pair {
    let network = InProcess::new();
    network.delay(delay);
    let (sender, receiver, owner) = (network.node(), network.node(), Arc::new(Owner::default()));
    let runtime = tokio::runtime::Handle::current();
    sender.start(&peer("one"), &runtime, Arc::new(Owner::default()));
    receiver.start(&peer("two"), &runtime, Arc::clone(&owner) as _);
    let cut = move || network.cut(&peer("one").id, &peer("two").id);
    Pair {
        sender: sender.into_transport(),
        receiver: receiver.into_transport(),
        to: peer("two"),
        address: "node:two".to_owned(),
        owner,
        cut: Box::new(cut),
    }
}

#[tokio::test(start_paused = true)]
async fn s1154_links_in_one_process_keep_the_contract_of_a_transport() {
    conformance::run(|| pair(Duration::ZERO)).await;
    conformance::run(|| pair(Duration::from_millis(20))).await;
}

#[tokio::test(start_paused = true)]
async fn s1600_in_one_process_nothing_overtakes_what_an_ended_link_returns() {
    for delay in [Duration::ZERO, Duration::from_millis(20)] {
        conformance::nothing_overtakes_what_an_ended_link_returns(pair(delay).await).await;
    }
}
