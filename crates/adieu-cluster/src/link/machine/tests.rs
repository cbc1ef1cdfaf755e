//! Both sides of a link on a network that is cut at random instants, and a judge.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use super::*;
use crate::link::inbox::Incoming;
use crate::records::ShardId;
use crate::store::Revision;
use crate::time::{Duration, now};
use crate::transport::{MessageId, Reply, Ticket};

#[derive(Clone, Debug)]
enum Step {
    Push {
        is_ask: bool,
        size: usize,
        expires: bool,
    },
    Open,
    /// The sender puts a frame on the network.
    Fill,
    /// A frame arrives at the receiver.
    Read,
    /// The receiver decides about, or replies to, one of the envelopes that it has.
    Decide {
        pick: usize,
        admits: bool,
    },
    /// The receiver puts a frame on the network.
    Answer,
    /// A frame arrives at the sender.
    Hear,
    /// The receiver reads nothing more, and sends `Bye`.
    Stop,
    /// The sender sends nothing more.
    Finish,
    /// The network loses everything, and both sides notice.
    Cut,
    /// The sender waits until time has passed.
    Expire,
}

/// Random steps. Not by a strategy of proptest, which needs 30 ms for each run.
fn steps(rng: &mut Rng) -> Vec<Step> {
    let one = |rng: &mut Rng| match rng.u32(..35) {
        0..6 => {
            Step::Push { is_ask: rng.bool(), size: rng.usize(..40), expires: rng.u32(..10) == 0 }
        }
        6..8 => Step::Open,
        8..12 => Step::Fill,
        12..16 => Step::Read,
        16..22 => Step::Decide { pick: rng.usize(..), admits: rng.u32(..5) > 0 },
        22..26 => Step::Answer,
        26..30 => Step::Hear,
        30 => Step::Stop,
        31 => Step::Finish,
        32 => Step::Cut,
        _ => Step::Expire,
    };
    (0..rng.usize(..160)).map(|_| one(rng)).collect()
}

/// The envelopes that the receiver holds of the current link.
struct Held {
    number: u64,
    id: u64,
    is_ask: bool,
    is_admitted: bool,
}

/// The real fate of an envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
enum Truth {
    #[default]
    NotRead,
    Read,
    Refused,
    Admitted,
    Replied,
}

struct Net {
    limits: Limits,
    sender: Outgoing<u64>,
    receiver: Incoming,
    forward: VecDeque<Forward>,
    backward: VecDeque<Backward>,
    held: Vec<Held>,
    is_ask: BTreeMap<u64, bool>,
    truth: BTreeMap<u64, Truth>,
    events: BTreeMap<u64, Vec<Event>>,
    last_read: u64,
    /// The envelopes of the current link that were not answered when it ended.
    links: usize,
}

fn envelope(id: u64, is_ask: bool, size: usize, deadline: Instant) -> Envelope {
    Envelope {
        shard: ShardId { region: "cart".into(), number: 1 },
        epoch: Revision::new(1),
        entity: "e".into(),
        id: MessageId { incarnation: Revision::new(1), sequence: id },
        is_ask,
        is_nested: false,
        is_request: false,
        deadline,
        payload: vec![7; size].into(),
        ticket: Ticket::default(),
    }
}

impl Net {
    fn new() -> Self {
        let limits = Limits {
            message: 30,
            frame: 160,
            outstanding: 12,
            outstanding_bytes: 1_000,
            unanswered: 20,
            ..Limits::default()
        };
        Self {
            limits,
            sender: Outgoing::new(limits),
            receiver: Incoming::new(limits),
            forward: VecDeque::new(),
            backward: VecDeque::new(),
            held: Vec::new(),
            is_ask: BTreeMap::new(),
            truth: BTreeMap::new(),
            events: BTreeMap::new(),
            last_read: 0,
            links: 0,
        }
    }

    fn deliver(&mut self) {
        for mut effect in self.sender.take_effects() {
            let events = self.events.entry(effect.tag).or_default();
            events.push(effect.first.clone());
            events.extend(effect.then.take());
            if effect.is_unanswered {
                self.sender.restore(effect);
            }
        }
    }

    fn end(&mut self, last_read: Option<u64>) {
        self.deliver();
        self.sender.end(last_read, "test");
        self.deliver();
        self.receiver = Incoming::new(self.limits);
        self.forward.clear();
        self.backward.clear();
        self.held.clear();
        self.links += 1;
    }

    fn step(&mut self, step: &Step, now: Instant) {
        match step {
            Step::Push { is_ask, size, expires } => {
                let id = self.is_ask.len() as u64 + 1;
                let deadline = now + Duration::from_secs(if *expires { 1 } else { 1_000 });
                let envelope = envelope(id, *is_ask, *size, deadline);
                if self.sender.push(envelope, id).is_ok() {
                    self.is_ask.insert(id, *is_ask);
                    self.truth.insert(id, Truth::default());
                }
            }
            Step::Open => self.sender.open(),
            Step::Fill => self.forward.extend(self.sender.fill(now)),
            Step::Read => {
                if !self.receiver.is_reading() || self.receiver.is_congested() {
                    return;
                }
                let Some(frame) = self.forward.pop_front() else {
                    if self.sender.is_finished() {
                        self.receiver.peer_finished();
                    }
                    return;
                };
                let size: usize = frame.envelopes.iter().map(|it| it.payload.len()).sum();
                assert!(size <= self.limits.frame);
                self.receiver.read(frame.first, frame.envelopes.len()).unwrap();
                for (number, parcel) in (frame.first..).zip(frame.envelopes) {
                    let id = parcel.sequence;
                    assert!(id > self.last_read, "{id} was read after {}", self.last_read);
                    self.last_read = id;
                    self.truth.insert(id, Truth::Read);
                    let is_ask = parcel.is_ask;
                    self.held.push(Held { number, id, is_ask, is_admitted: false });
                }
            }
            Step::Decide { pick, admits } => {
                if self.held.is_empty() {
                    return;
                }
                let index = pick % self.held.len();
                let held = &mut self.held[index];
                let number = held.number;
                match (held.is_admitted, admits) {
                    (false, true) => {
                        self.truth.insert(held.id, Truth::Admitted);
                        held.is_admitted = true;
                        self.receiver.admit(number, held.is_ask);
                        if held.is_ask {
                            return;
                        }
                    }
                    (false, false) => {
                        self.truth.insert(held.id, Truth::Refused);
                        self.receiver.refuse(number, Refusal::Busy);
                    }
                    (true, _) => {
                        self.truth.insert(held.id, Truth::Replied);
                        let payload = held.id.to_be_bytes().to_vec().into();
                        self.receiver.reply(number, Reply::Done(payload));
                    }
                }
                self.held.remove(index);
            }
            Step::Answer => self.backward.extend(self.receiver.next_frame()),
            Step::Hear => {
                let Some(frame) = self.backward.pop_front() else { return };
                let bye = frame.bye;
                self.sender.answered(frame).unwrap();
                self.deliver();
                if let Some(bye) = bye {
                    self.end(Some(bye.last_read));
                }
            }
            Step::Stop => self.receiver.stop(),
            Step::Finish => self.sender.finish(),
            Step::Cut => self.end(None),
            Step::Expire => {
                self.sender.expire(now + Duration::from_secs(2));
                self.deliver();
            }
        }
    }

    /// Lets the link end in order, then ends the sender.
    fn settle(&mut self, now: Instant) {
        let links = self.links;
        self.receiver.stop();
        for _ in 0..400 {
            self.step(&Step::Answer, now);
            self.step(&Step::Hear, now);
            if self.links > links {
                break;
            }
        }
        assert!(self.links > links, "the link did not end");
        self.sender.close("closed");
        self.end(None);
        assert!(self.sender.is_idle());
        assert_eq!(self.sender.bytes, 0);
        assert!(self.sender.push(envelope(1, true, 1, now), 1).is_err(), "accepted after close");
    }

    fn judge(&self) {
        for (id, truth) in &self.truth {
            let events = self.events.get(id).map(Vec::as_slice).unwrap_or_default();
            let is_ask = self.is_ask[id];
            match events {
                [Event::Admitted] => {
                    assert!(!is_ask && *truth == Truth::Admitted, "{id}: {events:?}")
                }
                [Event::Admitted, Event::Replied(Reply::Done(payload))] => {
                    assert!(is_ask && *truth == Truth::Replied, "{id}: {events:?}");
                    assert_eq!(payload.as_ref(), id.to_be_bytes(), "the reply to another");
                }
                [Event::Admitted, Event::Lost(_)] => assert!(is_ask && *truth >= Truth::Admitted),
                [Event::Refused(Refusal::Busy)] => assert_eq!(*truth, Truth::Refused, "{id}"),
                [Event::Refused(Refusal::Unsupported(text))] => {
                    assert!(text.contains("exceeds the limit of 30 bytes"), "{text}");
                    assert_eq!(*truth, Truth::NotRead);
                }
                [Event::Returned(_)] => {
                    assert_eq!(*truth, Truth::NotRead, "{id} was read and returned")
                }
                [Event::Lost(_)] => {}
                other => panic!("envelope {id} (ask: {is_ask}) had the events {other:?}"),
            }
        }
    }
}

/// Runs a test once for each seed. A panic names the seed.
fn for_seeds(test: impl Fn(&mut Rng, &mut Net, Instant)) -> Counts {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!("seed {}", self.0);
            }
        }
    }
    let mut counts = Counts::default();
    for seed in 0..20_000 {
        let seed = Seed(seed);
        let (mut rng, mut net) = (Rng::with_seed(seed.0), Net::new());
        test(&mut rng, &mut net, now());
        net.judge();
        for event in net.events.values().filter_map(|events| events.last()) {
            counts.lost += usize::from(matches!(event, Event::Lost(_)));
            counts.returned += usize::from(matches!(event, Event::Returned(_)));
            counts.replied += usize::from(matches!(event, Event::Replied(_)));
        }
    }
    counts
}

#[derive(Debug, Default)]
struct Counts {
    lost: usize,
    returned: usize,
    replied: usize,
}

#[test]
fn s1201_every_envelope_has_one_final_event_and_a_returned_one_was_not_read() {
    let counts = for_seeds(|rng, net, now| {
        for step in steps(rng) {
            net.step(&step, now);
        }
        net.settle(now);
    });
    let Counts { lost, returned, replied } = counts;
    assert!(lost.min(returned).min(replied) > 1_000, "too few to judge: {counts:?}");
}

#[test]
fn s1202_nothing_is_lost_if_everything_that_was_read_is_answered_before_bye() {
    let counts = for_seeds(|rng, net, now| {
        for step in steps(rng) {
            // The receiver stops in order, at the end.
            if !matches!(step, Step::Stop | Step::Cut) {
                net.step(&step, now);
            }
        }
        net.receiver.stop();
        while !net.held.is_empty() {
            net.step(&Step::Decide { pick: 0, admits: true }, now);
        }
        net.settle(now);
    });
    assert_eq!(counts.lost, 0);
    assert!(counts.returned.min(counts.replied) > 1_000, "too few to judge: {counts:?}");
}

#[test]
fn a_link_that_never_opened_returns_everything() {
    let mut sender = Outgoing::new(Limits::default());
    let now = now();
    for id in 1..4 {
        sender.push(envelope(id, true, 1, now + Duration::from_secs(9)), id).unwrap();
    }
    assert_eq!(sender.fill(now), None, "sent before the link was open");
    sender.end(None, "connection refused");
    let effects = sender.take_effects();
    let returned = effects.iter().map(|it| (it.tag, it.first.clone())).collect::<Vec<_>>();
    let event = Event::Returned("connection refused".into());
    assert_eq!(returned, [(1, event.clone()), (2, event.clone()), (3, event)]);
}

#[test]
fn s1203_an_idle_link_that_closes_keeps_envelopes_queued_since() {
    let mut sender = Outgoing::new(Limits::default());
    let now = now();
    sender.open();
    sender.finish();
    sender.push(envelope(1, true, 1, now + Duration::from_secs(9)), 1).unwrap();
    assert_eq!(sender.fill(now), None);
    sender.end(Some(0), "idle");
    assert!(sender.take_effects().is_empty() && sender.has_queued());
    sender.open();
    assert_eq!(sender.fill(now).map(|frame| (frame.first, frame.envelopes.len())), Some((1, 1)));
}

#[test]
fn s1204_outstanding_envelopes_are_bounded_by_number_and_by_size() {
    let now = now();
    let deadline = now + Duration::from_secs(9);
    let limits = Limits { outstanding: 3, outstanding_bytes: 2_000, ..Limits::default() };
    let mut sender = Outgoing::new(limits);
    for id in 1..=3 {
        sender.push(envelope(id, true, 1, deadline), id).unwrap();
    }
    let back = sender.push(envelope(4, true, 1, deadline), 4).unwrap_err().0;
    assert_eq!(back.id.sequence, 4, "the envelope is given back");
    let mut sender = Outgoing::new(limits);
    sender.push(envelope(1, false, 1_500, deadline), 1).unwrap();
    assert!(sender.push(envelope(2, false, 500, deadline), 2).is_err());
    // Admission frees the slot.
    sender.open();
    sender.fill(now).unwrap();
    sender.answered(Backward { decided: 1, ..Backward::default() }).unwrap();
    sender.push(envelope(2, false, 500, deadline), 2).unwrap();
}

#[test]
fn answers_to_envelopes_that_were_not_sent_are_a_violation() {
    let mut sender = Outgoing::<u64>::new(Limits::default());
    let frame = Backward { decided: 1, ..Backward::default() };
    assert!(sender.answered(frame).unwrap_err().to_string().contains("envelope 1"));
    let mut receiver = Incoming::new(Limits { outstanding: 2, ..Limits::default() });
    assert!(receiver.read(2, 1).is_err(), "a gap");
    assert!(receiver.read(1, 3).is_err(), "too many");
    receiver.read(1, 2).unwrap();
}

#[test]
fn nothing_more_is_read_while_too_many_answers_are_queued() {
    let limits = Limits { answer_bytes: 1_000, frame: 500, ..Limits::default() };
    let mut receiver = Incoming::new(limits);
    receiver.read(1, 4).unwrap();
    for number in 1..=4 {
        receiver.admit(number, true);
        receiver.reply(number, Reply::Done(vec![7; 400].into()));
    }
    assert!(receiver.is_congested());
    let replies = std::iter::from_fn(|| receiver.next_frame()).map(|frame| frame.replied.len());
    assert_eq!(replies.collect::<Vec<_>>(), [1, 1, 1, 1], "frames are bounded");
    assert!(!receiver.is_congested());
}

#[test]
fn s1820_an_envelope_that_was_taken_back_is_not_put_into_a_frame() {
    let now = now();
    let deadline = now + Duration::from_secs(9);
    let mut sender = Outgoing::new(Limits::default());
    let envelopes: Vec<_> = (1..=3).map(|id| envelope(id, true, 1, deadline)).collect();
    let tickets: Vec<_> = envelopes.iter().map(|it| it.ticket.clone()).collect();
    for (id, envelope) in (1..=3).zip(envelopes) {
        sender.push(envelope, id).unwrap();
    }
    assert!(tickets[1].take_back());
    sender.open();
    let frame = sender.fill(now).unwrap();
    let sent: Vec<_> = frame.envelopes.iter().map(|it| it.sequence).collect();
    assert_eq!(sent, [1, 3]);
    let effects = sender.take_effects();
    let returned = |it: &Effect<u64>| it.tag == 2 && matches!(it.first, Event::Returned(_));
    assert!(effects.len() == 1 && returned(&effects[0]), "{effects:?}");
    assert!(!tickets[0].take_back() && !tickets[2].take_back());
}
