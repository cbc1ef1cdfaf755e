//! Nodes with links, and a ledger of what became of each envelope.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::link::{Identity, Limits, Links, ListenError, Security};
use crate::records::{NodeId, ShardId};
use crate::store::Revision;
use crate::time::{Duration, now};
use crate::transport::{
    Answer, Envelope, Event, Full, MessageId, Peer, Pending, Receiver, Refusal, Reply, Ticket,
    Transport,
};

pub(super) const CLUSTER: &str = "shop";

/// The behaviour of a node towards the envelopes that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Admits them, and replies with the payload.
    Echo,
    /// Does not decide yet.
    Hold,
    /// Admits them, and does not reply yet.
    Admit,
    Refuse,
    /// Drops the answer.
    Drop,
    /// Admits them, then drops the answer.
    AdmitAndDrop,
}

/// Receives envelopes in one of several manners.
pub(super) struct Shop {
    members: Mutex<BTreeSet<Peer>>,
    manner: Mutex<Manner>,
    pub(super) received: Mutex<Vec<u64>>,
    pub(super) envelopes: Mutex<Vec<Envelope>>,
    held: Mutex<Vec<(Envelope, Box<dyn Answer>)>>,
}

/// A node with links.
pub(super) struct Node {
    pub(super) peer: Peer,
    pub(super) links: Links,
    pub(super) shop: Arc<Shop>,
}

/// The events of each envelope.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    events: Arc<Mutex<Entries>>,
    changed: Arc<Notify>,
}

/// For each envelope whether it is an ask, and its events.
type Entries = BTreeMap<u64, (bool, Vec<Event>)>;

static SEQUENCE: AtomicU64 = AtomicU64::new(1);

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn limits() -> Limits {
    Limits {
        dial: Duration::from_secs(10),
        unknown_peer: Duration::from_millis(300),
        ..Limits::default()
    }
}

pub(super) fn peer(name: &str, incarnation: u64) -> Peer {
    Peer { id: NodeId::new(name).unwrap(), incarnation: Revision::new(incarnation) }
}

pub(super) fn shard() -> ShardId {
    ShardId { region: "cart".into(), number: 17 }
}

pub(super) fn identity(peer: &Peer) -> Identity {
    Identity {
        cluster: CLUSTER.into(),
        node: peer.id.clone(),
        build: "test".into(),
        protocol: (1, 1),
    }
}

/// Waits until it is so.
pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = now() + PATIENCE;
    while !is_so() {
        assert!(now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

// === impl Node ===

impl Node {
    /// Starts a node that listens on a free port of the loopback interface.
    pub(super) fn start(name: &str, incarnation: u64) -> Self {
        Self::with(name, incarnation, Security::loopback_only(), limits())
    }

    pub(super) fn with(name: &str, incarnation: u64, security: Security, limits: Limits) -> Self {
        let peer = peer(name, incarnation);
        let identity = identity(&peer);
        Self::at("127.0.0.1:0", &peer, identity, security, limits).unwrap()
    }

    pub(super) fn at(
        address: &str,
        peer: &Peer,
        identity: Identity,
        security: Security,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let links = Links::listen(address, security, identity, limits)?;
        let shop = Arc::new(Shop {
            members: Mutex::default(),
            manner: Mutex::new(Manner::Echo),
            received: Mutex::default(),
            envelopes: Mutex::default(),
            held: Mutex::default(),
        });
        let receiver = Arc::clone(&shop) as Arc<dyn Receiver>;
        links.start(&Handle::current(), peer.incarnation, receiver)?;
        Ok(Self { peer: peer.clone(), links, shop })
    }

    pub(super) fn address(&self) -> String {
        self.links.address().unwrap().to_string()
    }

    pub(super) fn knows(&self, other: &Self) {
        self.shop.learn(&other.peer);
    }

    pub(super) fn send(&self, to: &Peer, address: &str, ledger: &Ledger, payload: Bytes) -> u64 {
        let deadline = now() + PATIENCE;
        loop {
            // Nothing is accepted while the last events of a link that has ended are reported.
            if let Ok(sent) = self.try_send(to, address, ledger, payload.clone(), true) {
                return sent;
            }
            assert!(now() < deadline, "the link accepts nothing");
            std::thread::yield_now();
        }
    }

    pub(super) fn try_send(
        &self,
        to: &Peer,
        address: &str,
        ledger: &Ledger,
        payload: Bytes,
        is_ask: bool,
    ) -> Result<u64, Full> {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let envelope = Envelope {
            shard: shard(),
            epoch: Revision::new(3),
            entity: "cart-17".into(),
            id: MessageId { incarnation: self.peer.incarnation, sequence },
            is_ask,
            is_nested: false,
            is_request: false,
            deadline: now() + PATIENCE,
            payload,
            ticket: Ticket::default(),
        };
        ledger.expect(sequence, is_ask);
        let notes = ledger.clone();
        let on_event = Box::new(move |event| notes.note(sequence, event));
        let sent = self.links.send(to, address, envelope, on_event);
        if sent.is_err() {
            ledger.withdraw(sequence);
        }
        sent.map(|()| sequence)
    }
}

/// Two nodes, each in the view of the other.
pub(super) fn pair() -> (Node, Node) {
    let (a, b) = (Node::start("a", 5), Node::start("b", 7));
    a.knows(&b);
    b.knows(&a);
    (a, b)
}

// === impl Shop ===

impl Shop {
    pub(super) fn learn(&self, peer: &Peer) {
        self.members.lock().unwrap().insert(peer.clone());
    }

    pub(super) fn forget(&self, peer: &Peer) {
        self.members.lock().unwrap().remove(peer);
    }

    pub(super) fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(super) fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Answers everything that is held.
    pub(super) fn release(&self) {
        for (envelope, answer) in std::mem::take(&mut *self.held.lock().unwrap()) {
            answer.reply(Reply::Done(envelope.payload));
        }
    }

    pub(super) fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }
}

impl Receiver for Shop {
    fn knows(&self, peer: &Peer) -> bool {
        self.members.lock().unwrap().contains(peer)
    }

    fn receive(&self, _: &Peer, envelope: Envelope, mut answer: Box<dyn Answer>) {
        self.received.lock().unwrap().push(envelope.id.sequence);
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Echo => {
                answer.admit();
                answer.reply(Reply::Done(envelope.payload.clone()));
            }
            Manner::Hold => self.held.lock().unwrap().push((envelope.clone(), answer)),
            Manner::Admit => {
                answer.admit();
                self.held.lock().unwrap().push((envelope.clone(), answer));
            }
            Manner::Refuse => {
                let newer = Some((peer("c", 8), Revision::new(9)));
                answer.refuse(Refusal::Moving { newer });
            }
            Manner::Drop => {}
            Manner::AdmitAndDrop => answer.admit(),
        }
        let mut envelopes = self.envelopes.lock().unwrap();
        if envelopes.len() < 100 {
            envelopes.push(envelope);
        }
    }

    fn prepare<'a>(
        &'a self,
        from: &'a Peer,
        shard: &'a ShardId,
    ) -> Pending<'a, Result<(), String>> {
        Box::pin(async move {
            match shard.number {
                17 => Ok(()),
                other => Err(format!("shard {other} is not for {}", from.id)),
            }
        })
    }
}

// === impl Ledger ===

impl Ledger {
    fn expect(&self, sequence: u64, is_ask: bool) {
        self.events.lock().unwrap().insert(sequence, (is_ask, Vec::new()));
    }

    fn withdraw(&self, sequence: u64) {
        self.events.lock().unwrap().remove(&sequence);
    }

    fn note(&self, sequence: u64, event: Event) {
        self.events.lock().unwrap().get_mut(&sequence).unwrap().1.push(event);
        self.changed.notify_waiters();
    }

    pub(super) fn of(&self, sequence: u64) -> Vec<Event> {
        self.events.lock().unwrap()[&sequence].1.clone()
    }

    /// Returns how many envelopes have no final event.
    pub(super) fn open(&self) -> usize {
        let events = self.events.lock().unwrap();
        events.values().filter(|(is_ask, events)| !is_final(*is_ask, events)).count()
    }

    /// Waits until every envelope has a final event.
    pub(super) async fn settled(&self) {
        let settled = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.open() == 0 {
                    return;
                }
                changed.await;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, settled).await;
        assert!(settled.is_ok(), "{} envelopes have no final event", self.open());
    }

    /// Counts the final events: replied, refused, returned, lost.
    pub(super) fn finals(&self) -> (usize, usize, usize, usize) {
        let events = self.events.lock().unwrap();
        let mut counts = (0, 0, 0, 0);
        for event in events.values().filter_map(|(_, events)| events.last()) {
            match event {
                Event::Replied(_) | Event::Admitted => counts.0 += 1,
                Event::Refused(_) => counts.1 += 1,
                Event::Returned(_) => counts.2 += 1,
                Event::Lost(_) => counts.3 += 1,
            }
        }
        counts
    }

    /// Each envelope had the events that the transport promises, and none that was returned was read.
    pub(super) fn judge(&self, read_by: &Shop) {
        let received = read_by.received.lock().unwrap();
        let mut once = BTreeSet::new();
        for sequence in &*received {
            assert!(once.insert(*sequence), "{sequence} was received twice");
        }
        assert!(received.is_sorted(), "received out of order");
        for (sequence, (is_ask, events)) in &*self.events.lock().unwrap() {
            let was_read = once.contains(sequence);
            match events.as_slice() {
                [Event::Admitted] => assert!(!is_ask && was_read),
                [Event::Admitted, Event::Replied(_) | Event::Lost(_)] => assert!(is_ask & was_read),
                [Event::Refused(_) | Event::Lost(_)] => {}
                [Event::Returned(why)] => assert!(!was_read, "{sequence} was read: {why}"),
                other => panic!("envelope {sequence} (ask: {is_ask}) had the events {other:?}"),
            }
        }
    }
}

fn is_final(is_ask: bool, events: &[Event]) -> bool {
    match events.last() {
        None => false,
        Some(Event::Admitted) => !is_ask,
        Some(Event::Replied(_) | Event::Refused(_) | Event::Returned(_) | Event::Lost(_)) => true,
    }
}
