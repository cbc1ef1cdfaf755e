//! The messages that a sender keeps, sends and repeats, and their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::transport::Peer;

fn at(millis: u64) -> Instant {
    *crate::world::ORIGIN + Duration::from_millis(millis)
}

fn epoch(number: u64) -> Revision {
    Revision::new(number)
}

fn peer(name: &str) -> Peer {
    Peer { id: NodeId::new(name).unwrap(), incarnation: epoch(1) }
}

fn owned(name: &str, number: u64) -> Grant {
    Grant::Owned { owner: peer(name), epoch: epoch(number) }
}

fn message(id: u64, kind: Kind) -> Outgoing {
    Outgoing { id, kind, is_nested: false, deadline: at(1_000) }
}

fn nested(id: u64) -> Outgoing {
    Outgoing { is_nested: true, ..message(id, Kind::Ask) }
}

fn moving() -> Event {
    Event::Refused(Refusal::Moving { newer: None })
}

fn done() -> Event {
    Event::Replied(Reply::Done(Bytes::from_static(b"4")))
}

/// A route whose effects are compared as text.
struct Sender(Route);

impl Sender {
    fn of(name: &str, number: u64) -> Self {
        let mut route = Route::default();
        route.see(owned(name, number), at(0), &mut Vec::new());
        Self(route)
    }

    fn act(&mut self, act: impl FnOnce(&mut Route, &mut Vec<Effect>)) -> Vec<String> {
        let mut out = Vec::new();
        act(&mut self.0, &mut out);
        out.into_iter()
            .map(|effect| match effect {
                Effect::Send { to, epoch, id } => format!("{id} to {} under {epoch}", to.id),
                Effect::Finish { id, outcome } => format!("{id}: {outcome:?}"),
            })
            .collect()
    }

    fn send(&mut self, message: Outgoing) -> Vec<String> {
        self.act(|route, out| route.send(message, at(0), out))
    }

    fn ask(&mut self, id: u64) -> Vec<String> {
        self.send(message(id, Kind::Ask))
    }

    fn on(&mut self, id: u64, event: Event) -> Vec<String> {
        self.act(|route, out| route.on(id, event, at(0), out))
    }

    fn see(&mut self, grant: Grant) -> Vec<String> {
        self.act(|route, out| route.see(grant, at(0), out))
    }

    fn advance(&mut self, millis: u64) -> Vec<String> {
        self.act(|route, out| route.advance(at(millis), |_| false, out))
    }
}

#[test]
fn an_ask_is_sent_admitted_and_replied_to() {
    let mut sender = Sender::of("a", 7);
    assert_eq!(sender.ask(1), ["1 to a under 7"]);
    assert_eq!(sender.0.outstanding(), 1);
    assert!(sender.on(1, Event::Admitted).is_empty());
    assert_eq!(sender.0.outstanding(), 0);
    assert_eq!(sender.on(1, done()), [r#"1: Replied(b"4")"#]);
    assert!(sender.0.is_idle());
    assert_eq!(sender.0.wake(), None);
}

/// Ends the route: no further event will be reported, and no timer will call.
#[test]
fn at_the_end_every_message_has_an_outcome() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.on(1, Event::Admitted);
    sender.ask(2);
    sender.ask(3);
    sender.on(3, moving());
    assert_eq!(
        sender.act(|route, out| route.abandon("gone", |_| false, out)),
        [
            "3: NotRun(Closed)",
            r#"1: Unknown(NotReplied("gone"))"#,
            r#"2: Unknown(NotReplied("gone"))"#
        ]
    );
    assert_eq!((sender.0.is_idle(), sender.0.outstanding(), sender.0.wake()), (true, 0, None));
    assert_eq!(sender.ask(4), ["4: NotRun(Closed)"]);
    assert!(sender.on(2, Event::Admitted).is_empty());
}

#[test]
fn a_tell_ends_when_it_is_admitted() {
    let mut sender = Sender::of("a", 7);
    assert_eq!(sender.send(message(1, Kind::Tell)), ["1 to a under 7"]);
    assert_eq!(sender.on(1, Event::Admitted), ["1: Admitted"]);
    assert!(sender.0.is_idle());
}

#[test]
fn a_refused_message_is_kept_in_its_place_and_others_wait_behind_it() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    assert!(sender.on(1, moving()).is_empty());
    // The owner will refuse the second one, too: nothing is sent there again.
    assert!(sender.ask(3).is_empty());
    assert!(sender.see(owned("b", 9)).is_empty(), "the second is outstanding at the old owner");
    let sent = ["1 to b under 9", "2 to b under 9", "3 to b under 9"];
    assert_eq!(sender.on(2, moving()), sent);
}

#[test]
fn the_hint_in_a_refusal_is_followed_before_the_view() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    let newer = Some((peer("b"), epoch(9)));
    let refusal = Event::Refused(Refusal::Moving { newer });
    assert_eq!(sender.on(1, refusal), ["1 to b under 9"]);
    assert!(sender.see(owned("a", 7)).is_empty(), "an older view changes nothing");
    assert!(sender.see(Grant::Free { since: epoch(8) }).is_empty());
    assert_eq!(sender.ask(2), ["2 to b under 9"]);
}

#[test]
fn an_admitted_message_does_not_delay_the_next_owner() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.on(1, Event::Admitted);
    sender.see(owned("b", 9));
    assert_eq!(sender.ask(2), ["2 to b under 9"]);
}

#[test]
fn the_same_node_under_another_epoch_is_another_owner() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.see(owned("a", 9));
    assert!(sender.ask(2).is_empty());
    assert_eq!(sender.on(1, moving()), ["1 to a under 9", "2 to a under 9"]);
}

#[test]
fn s1111_at_the_deadline_a_kept_message_did_not_run_and_a_sent_one_is_unknown() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    sender.on(2, Event::Admitted);
    sender.see(owned("b", 9));
    sender.ask(3);
    assert_eq!(sender.0.wake(), Some(at(1_000)));
    let ended = ["1: Unknown(Expired)", "2: Unknown(Expired)", "3: NotRun(Expired(Moving))"];
    assert_eq!(sender.advance(1_000), ended);
    // The first is still outstanding at the old owner, and late events have no effect.
    let late = Outgoing { deadline: at(2_000), ..message(4, Kind::Ask) };
    assert!(sender.send(late).is_empty());
    assert!(sender.on(2, done()).is_empty());
    assert_eq!(sender.on(1, Event::Admitted), ["4 to b under 9"]);
}

#[test]
fn s1820_at_the_deadline_a_message_that_was_not_sent_did_not_run() {
    let mut sender = Sender::of("a", 7);
    for id in 1..=3 {
        sender.ask(id);
    }
    let repeated = message(4, Kind::IdempotentAsk);
    sender.send(repeated);
    sender.on(4, Event::Lost("reset".to_owned()));
    sender.advance(10);
    // The first was sent, the others are still queued in the link.
    let ended = sender.act(|route, out| route.advance(at(1_000), |id| id > 1, out));
    let not_sent = NOT_SENT;
    let not_run = |id| format!("{id}: NotRun(Expired(Unreachable({not_sent:?})))");
    let lost = r#"4: Unknown(Lost("reset"))"#.to_owned();
    assert_eq!(ended, ["1: Unknown(Expired)".to_owned(), not_run(2), not_run(3), lost]);
    assert_eq!(sender.0.outstanding(), 1);
    // The link reports them later, which has no effect.
    assert!(sender.on(2, Event::Returned("expired".to_owned())).is_empty());
    sender.on(1, Event::Admitted);
    assert!(sender.0.is_idle());
}

#[test]
fn s1820_a_message_that_was_not_sent_when_its_node_ends_did_not_run() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    let ended = sender.act(|route, out| route.abandon("ended", |id| id == 2, out));
    assert_eq!(ended, [r#"1: Unknown(NotReplied("ended"))"#, "2: NotRun(Closed)"]);
    assert!(sender.0.is_idle());
}

#[test]
fn a_message_without_an_owner_waits_for_one() {
    let mut sender = Sender(Route::default());
    assert!(sender.ask(1).is_empty());
    assert!(sender.see(Grant::Free { since: epoch(7) }).is_empty());
    assert_eq!(sender.see(owned("a", 7)), ["1 to a under 7"]);
    sender.see(Grant::Free { since: epoch(8) });
    assert!(sender.ask(2).is_empty());
    let ended = ["1: Unknown(Expired)", "2: NotRun(Expired(NoOwner))"];
    assert_eq!(sender.advance(1_000), ended);
}

#[test]
fn s1112_of_too_many_kept_messages_the_newest_is_refused() {
    let mut sender = Sender(Route { limit: 2, ..Route::default() });
    sender.see(owned("a", 7));
    sender.ask(1);
    sender.ask(2);
    sender.on(1, moving());
    assert!(sender.ask(3).is_empty());
    // A refused message has its place before the third.
    assert_eq!(sender.on(2, moving()), ["3: NotRun(TooManyKept { limit: 2 })"]);
    assert_eq!(sender.ask(4), ["4: NotRun(TooManyKept { limit: 2 })"]);
    assert_eq!(sender.see(owned("b", 9)), ["1 to b under 9", "2 to b under 9"]);
    assert_eq!(Route::default().limit, 1_000);
}

#[test]
fn s1113_an_idempotent_ask_is_repeated_until_its_deadline() {
    let mut sender = Sender::of("a", 7);
    assert_eq!(sender.send(message(1, Kind::IdempotentAsk)), ["1 to a under 7"]);
    assert!(sender.on(1, Event::Lost("reset".to_owned())).is_empty());
    // It holds no other message back.
    assert_eq!(sender.ask(2), ["2 to a under 7"]);
    assert!(sender.advance(9).is_empty());
    assert_eq!(sender.advance(10), ["1 to a under 7"]);
    sender.on(1, Event::Admitted);
    let killed = Event::Replied(Reply::Unknown("killed".to_owned()));
    assert!(sender.act(|route, out| route.on(1, killed, at(10), out)).is_empty());
    assert_eq!(sender.0.wake(), Some(at(30)), "the pause doubles");
    assert_eq!(sender.advance(30), ["1 to a under 7"]);
    assert!(sender.on(1, moving()).is_empty());
    // It is kept, but an earlier attempt may have run.
    assert_eq!(sender.advance(1_000)[0], r#"1: Unknown(NotReplied("killed"))"#);
}

#[test]
fn an_ask_that_is_not_idempotent_is_not_repeated() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    let lost = Event::Lost("reset".to_owned());
    assert_eq!(sender.on(1, lost), [r#"1: Unknown(Lost("reset"))"#]);
}

#[test]
fn messages_that_a_link_returns_are_sent_again_after_a_pause() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    let returned = || Event::Returned("closed".to_owned());
    assert!(sender.on(1, returned()).is_empty());
    assert!(sender.on(2, returned()).is_empty());
    assert!(sender.advance(9).is_empty());
    assert_eq!(sender.0.wake(), Some(at(10)), "both were returned by one failure");
    assert_eq!(sender.advance(10), ["1 to a under 7", "2 to a under 7"]);
    sender.act(|route, out| route.on(1, returned(), at(10), out));
    assert_eq!(sender.0.wake(), Some(at(30)), "the pause doubles");
    // Another owner is not affected.
    let sent = sender.act(|route, out| {
        route.on(2, returned(), at(11), out);
        route.see(owned("b", 9), at(11), out);
    });
    assert_eq!(sent, ["1 to b under 9", "2 to b under 9"]);
}

#[test]
fn a_pause_does_not_wake_a_sender_that_waits_for_another_owner() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    sender.on(1, moving());
    sender.on(2, Event::Returned("closed".to_owned()));
    assert_eq!(sender.0.wake(), Some(at(1_000)), "only the deadlines");
}

#[test]
fn a_final_refusal_ends_a_message_and_holds_no_other_back() {
    for refusal in [Refusal::Busy, Refusal::Draining, Refusal::Expired] {
        let mut sender = Sender::of("a", 7);
        sender.ask(1);
        let ended = format!("1: NotRun(Refused({refusal:?}))");
        assert_eq!(sender.on(1, Event::Refused(refusal)), [ended]);
        assert_eq!(sender.ask(2), ["2 to a under 7"]);
    }
}

#[test]
fn nested_messages_do_not_wait_for_messages_that_a_draining_shard_refuses() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.on(1, moving());
    assert_eq!(sender.send(nested(2)), ["2 to a under 7"]);
    // After the hand-off was sent, nested messages are refused, too.
    assert!(sender.on(2, moving()).is_empty());
    assert!(sender.send(nested(3)).is_empty());
    let sent = ["1 to b under 9", "2 to b under 9", "3 to b under 9"];
    assert_eq!(sender.see(owned("b", 9)), sent);
}

#[test]
fn a_message_to_a_shard_of_this_node_takes_no_part_if_none_is_before_it() {
    let (me, you) = (peer("a").id, peer("b").id);
    let mut sender = Sender::of("a", 7);
    assert_eq!(sender.0.direct(&me, false), Some(epoch(7)));
    assert_eq!(sender.0.direct(&you, false), None);
    sender.ask(1);
    assert_eq!(sender.0.direct(&me, false), None, "one is outstanding");
    assert_eq!(sender.0.direct(&me, true), Some(epoch(7)), "nested ones do not wait for it");
    sender.on(1, moving());
    assert_eq!(sender.0.direct(&me, false), None, "one is kept");
    sender.0.cancel(1);
    assert_eq!(sender.0.direct(&me, false), None, "the shard is closed");
    sender.see(owned("a", 9));
    assert_eq!(sender.0.direct(&me, false), Some(epoch(9)));
}

#[test]
fn a_sender_that_closes_keeps_nothing() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.ask(2);
    sender.on(1, moving());
    assert_eq!(sender.act(Route::close), ["1: NotRun(Closed)"]);
    assert_eq!(sender.ask(3), ["3: NotRun(Closed)"]);
    assert_eq!(sender.on(2, Event::Returned("closed".to_owned())), ["2: NotRun(Closed)"]);
    assert!(sender.0.is_idle());
}

#[test]
fn s1176_a_leaving_node_sends_kept_messages_and_no_new_ones() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.on(1, moving());
    sender.0.refuse_new();
    assert_eq!(sender.ask(2), ["2: NotRun(Closed)"]);
    assert_eq!(sender.0.direct(&NodeId::new("a").unwrap(), false), None);
    assert_eq!(sender.see(owned("b", 9)), ["1 to b under 9"]);
}

#[test]
fn a_cancelled_message_has_no_outcome_and_stays_outstanding() {
    let mut sender = Sender::of("a", 7);
    sender.ask(1);
    sender.0.cancel(1);
    sender.see(owned("b", 9));
    assert!(sender.ask(2).is_empty());
    assert_eq!(sender.on(1, moving()), ["2 to b under 9"]);
}

#[derive(Clone, Debug)]
enum Step {
    Send { kind: u8, is_nested: bool, lasts: u64 },
    Answer { what: u8, pick: usize },
    Grant { is_seen: bool, is_free: bool },
    See,
    Wait(u64),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_u8, any::<bool>(), 1..300_u64)
            .prop_map(|(kind, is_nested, lasts)| Step::Send { kind, is_nested, lasts }),
        8 => (0..9_u8, any::<usize>()).prop_map(|(what, pick)| Step::Answer { what, pick }),
        2 => any::<(bool, bool)>().prop_map(|(is_seen, is_free)| Step::Grant { is_seen, is_free }),
        2 => Just(Step::See),
        2 => (0..50_u64).prop_map(Step::Wait),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Over any sequence of messages, grants and events: one outcome each; a message that was
    /// admitted, or whose fate is unknown, does not end as not run; the messages of a lane reach an
    /// owner that refuses all messages after the first one in order; and one epoch at a time.
    #[test]
    fn each_message_ends_once_and_lanes_are_sent_in_order(
        steps in proptest::collection::vec(step(), 1..80),
        limit in 2..6_usize,
    ) {
        let mut route = Route { limit, ..Route::default() };
        let (mut now, mut ids, mut revision) = (0, 0, 1);
        let mut grant = Grant::Absent;
        let mut sent: VecDeque<(u64, Revision)> = VecDeque::new();
        let mut info: BTreeMap<u64, (Kind, bool, u64)> = BTreeMap::new();
        let mut open: BTreeSet<u64> = BTreeSet::new();
        let mut admitted: BTreeSet<u64> = BTreeSet::new();
        let mut may_have_run: BTreeSet<u64> = BTreeSet::new();
        let mut last_admitted = [0; 2];
        let mut closed = [Revision::default(); 2];
        for step in steps {
            let mut out = Vec::new();
            match step {
                Step::Send { kind, is_nested, lasts } => {
                    ids += 1;
                    let kind = [Kind::Ask, Kind::Tell, Kind::IdempotentAsk][usize::from(kind)];
                    info.insert(ids, (kind, is_nested, now + lasts));
                    open.insert(ids);
                    let deadline = at(now + lasts);
                    route.send(Outgoing { id: ids, kind, is_nested, deadline }, at(now), &mut out);
                }
                // The owner decides in the order of arrival. Replies come in any order.
                Step::Answer { what, pick } if what < 6 => {
                    let _ = pick;
                    if let Some((id, epoch)) = sent.pop_front() {
                        let (kind, is_nested, _) = info[&id];
                        let lane = usize::from(is_nested);
                        let is_closed = epoch <= closed[lane];
                        let event = match what {
                            0 | 1 if !is_closed => {
                                // An idempotent message may come again, later.
                                if kind != Kind::IdempotentAsk {
                                    prop_assert!(last_admitted[lane] < id, "order");
                                    last_admitted[lane] = id;
                                }
                                may_have_run.insert(id);
                                if kind != Kind::Tell {
                                    admitted.insert(id);
                                }
                                Event::Admitted
                            }
                            2 => Event::Refused(Refusal::Busy),
                            3 => {
                                may_have_run.insert(id);
                                Event::Lost("reset".to_owned())
                            }
                            4 => Event::Returned("closed".to_owned()),
                            _ => {
                                closed[lane] = epoch;
                                Event::Refused(Refusal::Moving { newer: None })
                            }
                        };
                        // A link that ends has not read what follows.
                        let unread = sent.iter().filter(|(_, other)| *other == epoch);
                        let unread: Vec<u64> = unread.map(|(id, _)| *id).collect();
                        let ends = matches!(event, Event::Lost(_) | Event::Returned(_));
                        route.on(id, event, at(now), &mut out);
                        for id in unread.into_iter().filter(|_| ends) {
                            sent.retain(|(sent, _)| *sent != id);
                            let event = Event::Returned("closed".to_owned());
                            route.on(id, event, at(now), &mut out);
                        }
                    }
                }
                Step::Answer { what, pick } => {
                    let ids: Vec<u64> = admitted.iter().copied().collect();
                    if !ids.is_empty() {
                        let id = ids[pick % ids.len()];
                        admitted.remove(&id);
                        let event = match what {
                            6 => done(),
                            7 => Event::Lost("reset".to_owned()),
                            _ => Event::Replied(Reply::Unknown("killed".to_owned())),
                        };
                        route.on(id, event, at(now), &mut out);
                    }
                }
                Step::Grant { is_seen, is_free } => {
                    revision += 1;
                    grant = if is_free {
                        Grant::Free { since: epoch(revision) }
                    } else {
                        owned("a", revision)
                    };
                    if is_seen {
                        route.see(grant.clone(), at(now), &mut out);
                    }
                }
                Step::See => route.see(grant.clone(), at(now), &mut out),
                Step::Wait(millis) => {
                    now += millis;
                    route.advance(at(now), |_| false, &mut out);
                }
                Step::Cancel(pick) => {
                    let ids: Vec<u64> = open.iter().copied().collect();
                    if !ids.is_empty() {
                        open.remove(&ids[pick % ids.len()]);
                        route.cancel(ids[pick % ids.len()]);
                    }
                }
            }
            for effect in out {
                match effect {
                    Effect::Send { epoch, id, .. } => {
                        let (_, is_nested, _) = info[&id];
                        prop_assert!(open.contains(&id), "sent after it ended");
                        let before = sent.iter().filter(|(id, _)| info[id].1 == is_nested);
                        for (_, other) in before {
                            prop_assert_eq!(*other, epoch, "outstanding under two epochs");
                        }
                        prop_assert!(closed[usize::from(is_nested)] < epoch, "sent to a closed shard");
                        sent.push_back((id, epoch));
                    }
                    Effect::Finish { id, outcome } => {
                        prop_assert!(open.remove(&id), "{} ended twice", id);
                        let is_past = info[&id].2 <= now;
                        let is_sent = sent.iter().any(|(sent, _)| *sent == id);
                        match outcome {
                            Outcome::Replied(_) | Outcome::Admitted => {
                                prop_assert!(may_have_run.contains(&id));
                            }
                            Outcome::NotRun(_) => {
                                prop_assert!(!may_have_run.contains(&id) && !is_sent);
                            }
                            Outcome::Unknown(_) => {
                                prop_assert!(may_have_run.contains(&id) || (is_past && is_sent));
                            }
                        }
                    }
                }
            }
            // A timer that is due and changes nothing would keep a processor busy.
            let mut later = route.clone();
            later.advance(at(now), |_| false, &mut Vec::new());
            prop_assert!(later.wake().is_none_or(|wake| at(now) < wake));
            prop_assert!(route.kept() <= limit);
            prop_assert_eq!(route.outstanding(), sent.len());
        }
        // At the last deadline everything has ended.
        let mut out = Vec::new();
        route.advance(at(now + 1_000), |_| false, &mut out);
        for effect in out {
            if let Effect::Finish { id, .. } = effect {
                prop_assert!(open.remove(&id));
            }
        }
        prop_assert!(open.is_empty(), "{:?} have no outcome", open);
        for (id, _) in sent {
            route.on(id, Event::Returned("closed".to_owned()), at(now + 1_000), &mut Vec::new());
        }
        prop_assert!(route.is_idle() && route.wake().is_none());
    }
}
