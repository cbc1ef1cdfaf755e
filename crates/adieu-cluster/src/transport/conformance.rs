//! The requirements on every transport, as tests that run on any pair of nodes.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{
    Answer, Envelope, Event, MessageId, OnEvent, Peer, Pending, Receiver, Refusal, Reply, Ticket,
    Transport,
};
use crate::records::ShardId;
use crate::store::Revision;
use crate::time::{Duration, now};

/// Two nodes that can reach each other: one sends, the other receives into an [`Owner`].
pub(crate) struct Pair {
    pub(crate) sender: Arc<dyn Transport>,
    pub(crate) receiver: Arc<dyn Transport>,
    pub(crate) to: Peer,
    pub(crate) address: String,
    pub(crate) owner: Arc<Owner>,
    /// Breaks the link between them.
    pub(crate) cut: Box<dyn Fn() + Send + Sync>,
}

/// Receives messages, and answers them when the test requests it.
#[derive(Default)]
pub(crate) struct Owner {
    received: Mutex<Vec<Received>>,
    pub(crate) is_unknown: std::sync::atomic::AtomicBool,
}

/// The number of a message, and its answer until it is taken.
type Received = (u64, Option<Box<dyn Answer>>);

/// The events of the messages that a test has sent.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<(u64, Event)>>>);

// === impl Owner ===

impl Owner {
    fn numbers(&self) -> Vec<u64> {
        self.received.lock().unwrap().iter().map(|(number, _)| *number).collect()
    }

    fn answer(&self, number: u64) -> Box<dyn Answer> {
        let mut received = self.received.lock().unwrap();
        let found = received.iter_mut().find(|(it, answer)| *it == number && answer.is_some());
        found.and_then(|(_, answer)| answer.take()).expect("the message was received")
    }

    fn answer_all(&self, with: impl Fn(u64, Box<dyn Answer>)) {
        for (number, answer) in self.received.lock().unwrap().iter_mut() {
            if let Some(answer) = answer.take() {
                with(*number, answer);
            }
        }
    }
}

impl Receiver for Owner {
    fn knows(&self, _: &Peer) -> bool {
        !self.is_unknown.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn receive(&self, _: &Peer, envelope: Envelope, answer: Box<dyn Answer>) {
        self.received.lock().unwrap().push((envelope.id.sequence, Some(answer)));
    }

    fn prepare<'a>(&'a self, _: &'a Peer, shard: &'a ShardId) -> Pending<'a, Result<(), String>> {
        let declines = shard.number == 13;
        Box::pin(std::future::ready(if declines { Err("declined".to_owned()) } else { Ok(()) }))
    }
}

// === impl Events ===

impl Events {
    fn of(&self, number: u64) -> Vec<Event> {
        let events = self.0.lock().unwrap();
        events.iter().filter(|(it, _)| *it == number).map(|(_, event)| event.clone()).collect()
    }

    /// Returns what notes the events of a message.
    fn of_message(&self, number: u64) -> OnEvent {
        let events = self.clone();
        Box::new(move |event| events.0.lock().unwrap().push((number, event)))
    }
}

// === impl Pair ===

impl Pair {
    fn send(&self, events: &Events, number: u64, is_ask: bool) {
        let envelope = envelope(number, is_ask);
        let on_event = events.of_message(number);
        self.sender.send(&self.to, &self.address, envelope, on_event).expect("there is room");
    }
}

fn envelope(number: u64, is_ask: bool) -> Envelope {
    Envelope {
        shard: ShardId { region: "cart".into(), number: 3 },
        epoch: Revision::new(7),
        entity: "cart-1".into(),
        id: MessageId { incarnation: Revision::new(1), sequence: number },
        is_ask,
        is_nested: false,
        is_request: false,
        deadline: now() + Duration::from_secs(30),
        payload: Bytes::from(vec![b'x'; 10]),
        ticket: Ticket::default(),
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = now();
    while !holds() {
        assert!(now() - begun < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs every test, each on a new pair.
pub(crate) async fn run<F: Future<Output = Pair>>(pair: impl Fn() -> F) {
    keeps_order_and_reports_replies(pair().await).await;
    reports_refusals(pair().await).await;
    an_answer_that_is_dropped_counts(pair().await).await;
    what_was_read_is_lost_when_the_link_breaks(pair().await).await;
    what_was_not_read_returns_when_the_peer_closes(pair().await).await;
    an_unknown_node_cannot_speak(pair().await).await;
    a_peer_can_decline(pair().await).await;
}

async fn keeps_order_and_reports_replies(pair: Pair) {
    let events = Events::default();
    (0..200).for_each(|number| pair.send(&events, number, number % 2 == 0));
    until("all are received", || pair.owner.numbers().len() == 200).await;
    assert_eq!(pair.owner.numbers(), (0..200).collect::<Vec<_>>());
    pair.owner.answer_all(|number, mut answer| {
        answer.admit();
        if number % 2 == 0 {
            answer.reply(Reply::Done(Bytes::from(number.to_string())));
        }
    });
    until("all are answered", || events.0.lock().unwrap().len() == 300).await;
    for number in 0..200 {
        let mut expected = vec![Event::Admitted];
        if number % 2 == 0 {
            expected.push(Event::Replied(Reply::Done(Bytes::from(number.to_string()))));
        }
        assert_eq!(events.of(number), expected);
    }
}

async fn reports_refusals(pair: Pair) {
    let events = Events::default();
    let newer = Peer { id: pair.to.id.clone(), incarnation: Revision::new(99) };
    let refusals = [
        Refusal::Moving { newer: Some((newer, Revision::new(8))) },
        Refusal::Moving { newer: None },
        Refusal::Draining,
        Refusal::Busy,
        Refusal::Overloaded("full".to_owned()),
        Refusal::Expired,
        Refusal::Unsupported("what?".to_owned()),
    ];
    (0..).zip(&refusals).for_each(|(number, _)| pair.send(&events, number, true));
    until("all are received", || pair.owner.numbers().len() == refusals.len()).await;
    for (number, refusal) in (0..).zip(&refusals) {
        pair.owner.answer(number).refuse(refusal.clone());
    }
    until("all are refused", || events.0.lock().unwrap().len() == refusals.len()).await;
    for (number, refusal) in (0..).zip(refusals) {
        assert_eq!(events.of(number), [Event::Refused(refusal)]);
    }
}

async fn an_answer_that_is_dropped_counts(pair: Pair) {
    let events = Events::default();
    (0..2).for_each(|number| pair.send(&events, number, true));
    until("all are received", || pair.owner.numbers().len() == 2).await;
    drop(pair.owner.answer(0));
    let mut admitted = pair.owner.answer(1);
    admitted.admit();
    drop(admitted);
    until("all have ended", || events.0.lock().unwrap().len() == 3).await;
    assert_eq!(events.of(0), [Event::Refused(Refusal::Moving { newer: None })]);
    assert!(matches!(&events.of(1)[..], [Event::Admitted, Event::Replied(Reply::Unknown(_))]));
}

async fn what_was_read_is_lost_when_the_link_breaks(pair: Pair) {
    let events = Events::default();
    (0..2).for_each(|number| pair.send(&events, number, true));
    until("all are received", || pair.owner.numbers().len() == 2).await;
    pair.owner.answer(0).admit();
    (pair.cut)();
    until("both are lost", || {
        (0..2).all(|number| {
            matches!(
                events.of(number).last(),
                Some(Event::Lost(_) | Event::Replied(Reply::Unknown(_)))
            )
        })
    })
    .await;
    assert!(matches!(events.of(1)[..], [Event::Lost(_)]), "{:?}", events.of(1));
}

async fn what_was_not_read_returns_when_the_peer_closes(pair: Pair) {
    let events = Events::default();
    pair.send(&events, 0, true);
    until("it is received", || pair.owner.numbers().len() == 1).await;
    let mut answer = pair.owner.answer(0);
    answer.admit();
    answer.reply(Reply::Done(Bytes::from_static(b"done")));
    pair.receiver.close().await;
    pair.send(&events, 1, true);
    until("both have ended", || {
        (0..2).all(|number| events.of(number).last().is_some_and(|it| *it != Event::Admitted))
    })
    .await;
    // The answer was sent before the link was closed.
    assert_eq!(events.of(0).len(), 2, "{:?}", events.of(0));
    assert!(matches!(events.of(1)[..], [Event::Returned(_)]), "{:?}", events.of(1));
    assert_eq!(pair.owner.numbers(), [0]);
}

async fn an_unknown_node_cannot_speak(pair: Pair) {
    let events = Events::default();
    pair.owner.is_unknown.store(true, std::sync::atomic::Ordering::Relaxed);
    pair.send(&events, 0, true);
    until("it has ended", || !events.of(0).is_empty()).await;
    assert!(matches!(events.of(0)[..], [Event::Returned(_)]), "{:?}", events.of(0));
    assert!(pair.owner.numbers().is_empty());
}

/// Sends from within the events of a link that has ended.
pub(crate) async fn nothing_overtakes_what_an_ended_link_returns(pair: Pair) {
    let events = Events::default();
    let accepted = Arc::new(Mutex::new(Vec::new()));
    pair.owner.is_unknown.store(true, std::sync::atomic::Ordering::Relaxed);
    for number in 0..3 {
        let (noted, accepted, late) = (events.clone(), Arc::clone(&accepted), events.clone());
        let (sender, to, address) =
            (Arc::clone(&pair.sender), pair.to.clone(), pair.address.clone());
        let on_event = Box::new(move |event| {
            let sent = sender.send(&to, &address, envelope(10 + number, true), late.of_message(10));
            accepted.lock().unwrap().push(sent.is_ok());
            noted.0.lock().unwrap().push((number, event));
        });
        let sent = pair.sender.send(&pair.to, &pair.address, envelope(number, true), on_event);
        sent.expect("there is room");
    }
    until("all have ended", || events.0.lock().unwrap().len() >= 3).await;
    let returned = |number| matches!(events.of(number)[..], [Event::Returned(_)]);
    assert!((0..3).all(returned), "{:?}", events.0.lock().unwrap());
    assert_eq!(*accepted.lock().unwrap(), [false; 3]);
    // When all events have been reported, the next link accepts again.
    pair.owner.is_unknown.store(false, std::sync::atomic::Ordering::Relaxed);
    let on_event = || events.of_message(20);
    until("it is accepted", || {
        pair.sender.send(&pair.to, &pair.address, envelope(20, true), on_event()).is_ok()
    })
    .await;
    until("it is received", || pair.owner.numbers() == [20]).await;
}

async fn a_peer_can_decline(pair: Pair) {
    let shard = |number| ShardId { region: "cart".into(), number };
    let (accepts, declines) = (shard(1), shard(13));
    assert_eq!(pair.sender.prepare(&pair.to, &pair.address, &accepts).await, Ok(()));
    assert!(pair.sender.prepare(&pair.to, &pair.address, &declines).await.is_err());
}
