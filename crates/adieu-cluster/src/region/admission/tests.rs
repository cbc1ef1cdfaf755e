//! The messages that a shard admits, holds and refuses.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::records::NodeId;
use crate::transport::Peer;

fn at(millis: u64) -> Instant {
    *crate::world::ORIGIN + Duration::from_millis(millis)
}

fn epoch(number: u64) -> Revision {
    Revision::new(number)
}

fn owned(name: &str, number: u64) -> Grant {
    let owner = Peer { id: NodeId::new(name).unwrap(), incarnation: epoch(1) };
    Grant::Owned { owner, epoch: epoch(number) }
}

fn arrival(id: u64, number: u64) -> Arrival {
    let id = MessageId { incarnation: epoch(2), sequence: id };
    Arrival { id, epoch: epoch(number), is_nested: false, deadline: at(1_000) }
}

fn nested(id: u64, number: u64) -> Arrival {
    Arrival { is_nested: true, ..arrival(id, number) }
}

const MOVING: Decision = Decision::Refuse(Refusal::Moving { newer: None });

fn open(number: u64) -> Admission {
    let mut admission = Admission::default();
    admission.see(owned("me", number), Some(epoch(number)), at(0), &mut Vec::new());
    admission
}

#[test]
fn s1120_a_message_enters_only_under_the_epoch_that_it_names() {
    let mut admission = open(7);
    assert_eq!(admission.receive(arrival(1, 7), at(0)), Decision::Admit);
    assert_eq!(admission.receive(arrival(2, 8), at(0)), Decision::Hold);
    let newer = Some((owned("me", 7).owned().unwrap().0.clone(), epoch(7)));
    let refusal = Refusal::Moving { newer };
    assert_eq!(admission.receive(arrival(3, 6), at(0)), Decision::Refuse(refusal));
    assert_eq!((admission.inside(), admission.held()), (1, 1));
}

#[test]
fn the_fast_path_admits_a_message_at_once_or_changes_nothing() {
    let mut admission = open(7);
    assert_eq!(admission.open(), Some(epoch(7)));
    assert!(admission.try_admit(&arrival(1, 7), at(0)));
    assert!(!admission.try_admit(&arrival(2, 8), at(0)), "it would be held");
    admission.drain(at(500));
    assert_eq!(admission.open(), None);
    assert!(!admission.try_admit(&arrival(3, 7), at(0)));
    assert!(admission.try_admit(&nested(4, 7), at(0)));
    assert_eq!((admission.inside(), admission.held()), (2, 0));
}

#[test]
fn s1121_a_message_ahead_of_the_view_is_held_until_the_view_has_caught_up() {
    let mut admission = Admission::default();
    let mut decided = Vec::new();
    admission.see(Grant::Free { since: epoch(7) }, None, at(0), &mut decided);
    // A grant has the revision of the record that it replaces: this one is not outdated.
    assert_eq!(admission.receive(arrival(1, 7), at(0)), Decision::Hold);
    assert_eq!(admission.receive(arrival(2, 9), at(0)), Decision::Hold);
    assert_eq!(admission.receive(arrival(3, 6), at(0)), MOVING);
    admission.see(owned("me", 7), Some(epoch(7)), at(1), &mut decided);
    assert_eq!(decided, [(arrival(1, 7).id, Decision::Admit)]);
    decided.clear();
    admission.see(owned("you", 9), None, at(2), &mut decided);
    assert_eq!(decided, [(arrival(2, 9).id, MOVING)], "this node does not own the shard");
}

#[test]
fn s1473_a_message_that_is_repeated_while_it_is_held_enters_once_in_its_place() {
    let mut admission = Admission::default();
    for id in [1, 2, 1] {
        assert_eq!(admission.receive(arrival(id, 7), at(0)), Decision::Hold);
    }
    assert_eq!(admission.held(), 2);
    let mut decided = Vec::new();
    admission.see(owned("me", 7), Some(epoch(7)), at(0), &mut decided);
    let entered: Vec<u64> = decided.iter().map(|(id, _)| id.sequence).collect();
    assert_eq!((entered.as_slice(), admission.inside()), ([1, 2].as_slice(), 2));
    // A message that was counted twice would keep the shard from being handed over.
    admission.drain(at(500));
    admission.leave();
    admission.leave();
    assert!(admission.hand_over());
}

#[test]
fn s1122_a_message_is_held_no_longer_than_its_deadline_and_in_bounded_number() {
    let mut admission = Admission { limit: 2, ..open(7) };
    for id in 1..=2 {
        assert_eq!(admission.receive(arrival(id, 9), at(0)), Decision::Hold);
    }
    let Decision::Refuse(Refusal::Overloaded(why)) = admission.receive(arrival(3, 9), at(0)) else {
        panic!("a third message is held");
    };
    assert_eq!(why, "2 messages wait for the shard to open");
    assert_eq!(admission.wake(), Some(at(1_000)));
    let mut decided = Vec::new();
    admission.advance(at(999), &mut decided);
    assert_eq!(decided, []);
    admission.advance(at(1_000), &mut decided);
    let expired = Decision::Refuse(Refusal::Expired);
    assert_eq!(decided, [(arrival(1, 9).id, expired.clone()), (arrival(2, 9).id, expired.clone())]);
    assert_eq!(admission.receive(arrival(4, 7), at(1_000)), expired);
}

#[test]
fn s1123_a_draining_shard_admits_only_nested_messages_and_not_in_the_second_half() {
    let mut admission = open(7);
    assert_eq!(admission.receive(arrival(1, 7), at(0)), Decision::Admit);
    admission.drain(at(500));
    assert_eq!(admission.receive(arrival(2, 7), at(1)), MOVING);
    assert_eq!(admission.receive(nested(3, 7), at(499)), Decision::Admit);
    let refused = Decision::Refuse(Refusal::Draining);
    assert_eq!(admission.receive(nested(4, 7), at(500)), refused);
    // It closed under this epoch: a view that was loaded again does not open it.
    admission.see(owned("me", 7), Some(epoch(7)), at(501), &mut Vec::new());
    assert_eq!(admission.receive(arrival(5, 7), at(501)), MOVING);
}

#[test]
fn s1124_a_shard_is_handed_over_when_it_is_empty_and_nothing_enters_after_that() {
    let mut admission = open(7);
    assert!(!admission.hand_over(), "it is open");
    assert_eq!(admission.receive(arrival(1, 7), at(0)), Decision::Admit);
    admission.enter();
    admission.drain(at(500));
    assert!(!admission.hand_over(), "a message and an entity are inside");
    admission.leave();
    assert!(!admission.hand_over(), "an entity is inside");
    assert_eq!(admission.receive(nested(2, 7), at(1)), Decision::Admit);
    admission.leave();
    admission.leave();
    assert!(admission.hand_over());
    assert_eq!(admission.receive(nested(3, 7), at(2)), MOVING);
    // A hand-off that conflicts is tried again. The shard stays closed meanwhile.
    admission.see(owned("me", 7), Some(epoch(7)), at(3), &mut Vec::new());
    assert!(admission.hand_over());
    assert_eq!(admission.receive(nested(4, 7), at(3)), MOVING);
}

#[test]
fn a_node_that_lost_its_place_refuses_everything_for_good() {
    let mut admission = open(7);
    assert_eq!(admission.receive(arrival(1, 9), at(0)), Decision::Hold);
    let mut decided = Vec::new();
    admission.lose(&mut decided);
    assert_eq!(decided, [(arrival(1, 9).id, MOVING)]);
    admission.see(owned("me", 9), Some(epoch(9)), at(1), &mut decided);
    assert_eq!(admission.receive(arrival(2, 9), at(1)), MOVING);
    assert_eq!(admission.receive(arrival(3, 11), at(1)), MOVING);
}

#[derive(Clone, Debug)]
enum Step {
    Receive { epoch: u64, is_nested: bool },
    Grant { mine: bool },
    Free,
    Drain,
    Leave,
    HandOver,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u64, any::<bool>()).prop_map(|(epoch, is_nested)| Step::Receive { epoch, is_nested }),
        2 => any::<bool>().prop_map(|mine| Step::Grant { mine }),
        1 => Just(Step::Free),
        2 => Just(Step::Drain),
        3 => Just(Step::Leave),
        2 => Just(Step::HandOver),
        2 => Just(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Over any sequence: each message gets one decision; it enters only under the epoch that is
    /// open; after the first refusal as moving, no message of its kind enters under that epoch; and
    /// nothing is inside when the shard is handed over.
    #[test]
    fn closing_is_final_and_each_message_is_decided_about_once(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut admission = Admission::default();
        let (mut now, mut revision, mut ids, mut inside) = (0, 2_u64, 0, 0_usize);
        let (mut mine, mut grant) = (None, Grant::Free { since: epoch(1) });
        let mut undecided: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let mut refused: BTreeMap<(u64, bool), ()> = BTreeMap::new();
        for step in steps {
            let mut decided = Vec::new();
            match step {
                Step::Receive { epoch: ahead, is_nested } => {
                    let number = (revision + 2).saturating_sub(ahead);
                    ids += 1;
                    undecided.insert(ids, (number, is_nested));
                    let deadline = at(now + 30 + ids % 50);
                    let arrival = Arrival { is_nested, deadline, ..arrival(ids, number) };
                    let decision = admission.receive(arrival, at(now));
                    if decision != Decision::Hold {
                        decided.push((arrival.id, decision));
                    }
                }
                Step::Grant { mine: is_mine } => {
                    // A shard moves only when it is empty, or when its owner is gone.
                    if mine.is_none() || admission.hand_over() {
                        let name = if is_mine { "me" } else { "you" };
                        grant = owned(name, revision);
                        mine = is_mine.then(|| epoch(revision));
                        revision += 1;
                    }
                    admission.see(grant.clone(), mine, at(now), &mut decided);
                }
                Step::Free => {
                    if mine.is_none() || admission.hand_over() {
                        grant = Grant::Free { since: epoch(revision) };
                        (mine, revision) = (None, revision + 1);
                    }
                    admission.see(grant.clone(), mine, at(now), &mut decided);
                }
                Step::Drain => admission.drain(at(now + 20)),
                Step::Leave if inside > 0 => {
                    admission.leave();
                    inside -= 1;
                }
                Step::Leave => {}
                Step::HandOver => prop_assert!(!admission.hand_over() || inside == 0),
                Step::Wait => {
                    now += 7;
                    admission.advance(at(now), &mut decided);
                }
            }
            for (id, decision) in decided {
                let (number, is_nested) = undecided.remove(&id.sequence).expect("one decision");
                match decision {
                    Decision::Admit => {
                        prop_assert_eq!(mine, Some(epoch(number)));
                        prop_assert!(!refused.contains_key(&(number, is_nested)));
                        inside += 1;
                    }
                    Decision::Refuse(Refusal::Moving { newer }) => {
                        prop_assert!(newer.is_none_or(|(_, newer)| epoch(number) < newer));
                        refused.insert((number, is_nested), ());
                    }
                    Decision::Refuse(Refusal::Draining) => prop_assert!(is_nested),
                    Decision::Refuse(_) => {}
                    Decision::Hold => prop_assert!(false, "held is not a decision"),
                }
            }
            prop_assert_eq!(admission.held(), undecided.len());
            prop_assert_eq!(admission.inside(), inside);
        }
    }
}
