//! The calls that enter a bulkhead, wait or are shed.

use proptest::prelude::*;

use super::Criticality::{BestEffort, Critical, Normal};
use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn start() -> Instant {
    crate::time::now()
}

/// A queue with one slot, which is taken.
fn taken(capacity: usize) -> Queue<u64> {
    let mut queue = Queue::new(1, capacity);
    assert!(queue.enter());
    queue
}

fn wait(queue: &mut Queue<u64>, now: Instant, criticality: Criticality, name: u64) -> Place<u64> {
    queue.wait(now, criticality, None, name).unwrap()
}

#[test]
fn s723_the_most_critical_enters_first_and_within_that_the_first() {
    let now = start();
    let mut queue = taken(10);
    for (name, criticality) in [(1, BestEffort), (2, Normal), (3, Critical), (4, Normal)] {
        wait(&mut queue, now, criticality, name);
    }
    let mut order = Vec::new();
    while queue.waiting() > 0 {
        queue.leave();
        order.push(queue.next(now).unwrap());
        assert_eq!(queue.next(now), None, "there is one slot");
    }
    assert_eq!(order, [3, 2, 4, 1].map(Next::Enter));
}

#[test]
fn s724_in_a_congested_queue_the_newest_enters_first() {
    let now = start();
    let mut queue = taken(10);
    wait(&mut queue, now, Normal, 1);
    let congested = now + CONGESTED_AFTER;
    wait(&mut queue, congested - ms(1), Normal, 2);
    wait(&mut queue, congested - ms(1), Normal, 3);
    queue.leave();
    assert_eq!(queue.next(congested), Some(Next::Enter(3)));
    queue.leave();
    assert_eq!(queue.next(congested), Some(Next::Enter(2)));
    queue.leave();
    assert_eq!(queue.next(congested), Some(Next::Shed(1)), "its time is up");
}

#[test]
fn s725_a_full_queue_sheds_its_oldest_least_critical_call_for_a_more_critical_one() {
    let now = start();
    let mut queue = taken(3);
    for (name, criticality) in [(1, Normal), (2, BestEffort), (3, BestEffort)] {
        wait(&mut queue, now, criticality, name);
    }
    assert_eq!(queue.wait(now, BestEffort, None, 4), Err(Full));
    assert_eq!(wait(&mut queue, now, Normal, 5).shed, Some(2));
    assert_eq!(wait(&mut queue, now, Critical, 6).shed, Some(3));
    assert_eq!(queue.wait(now, Normal, None, 7), Err(Full));
    assert_eq!(wait(&mut queue, now, Critical, 8).shed, Some(1));
}

#[test]
fn s726_a_call_waits_a_tenth_of_a_second_or_in_a_congested_queue_a_few_milliseconds() {
    let now = start();
    let mut queue = taken(10);
    let mut until =
        |at: u64, criticality| wait(&mut queue, now + ms(at), criticality, at).until - now;
    assert_eq!(until(0, Normal), ms(100));
    assert_eq!(until(50, Normal), ms(100), "when the queue becomes congested");
    assert_eq!(until(97, Normal), ms(102));
    assert_eq!(until(97, BestEffort), ms(100));
    assert_eq!(until(97, Critical), ms(117));
    assert_eq!(until(150, Normal), ms(155));
    assert_eq!(until(150, BestEffort), ms(151));
    assert_eq!(until(150, Critical), ms(170));
}

#[test]
fn s727_no_call_waits_beyond_its_deadline_or_enters_after_it() {
    let now = start();
    let mut queue = taken(10);
    let place = queue.wait(now, Normal, Some(now + ms(7)), 1).unwrap();
    assert_eq!(place.until, now + ms(7));
    queue.leave();
    assert_eq!(queue.next(now + ms(7)), Some(Next::Shed(1)));
    assert_eq!(queue.inside(), 0);
}

/// The model: all waiting calls in one list, which is searched for the next.
#[derive(Default)]
struct Model {
    inside: usize,
    waiting: Vec<(Criticality, u64, Instant)>,
    busy_since: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Act {
    Wait(u64),
    Enter(Criticality),
    Leave,
    Forget(usize),
    Limit(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let criticality = prop_oneof![Just(BestEffort), Just(Normal), Just(Critical)];
    prop_oneof![
        1 => (0u64..60).prop_map(Act::Wait),
        4 => criticality.prop_map(Act::Enter),
        2 => Just(Act::Leave),
        1 => (0usize..8).prop_map(Act::Forget),
        1 => (1usize..5).prop_map(Act::Limit),
    ]
}

impl Model {
    fn next(&mut self, now: Instant, limit: usize) -> Option<Next<u64>> {
        if self.inside >= limit {
            return None;
        }
        let congested = self.busy_since.is_some_and(|since| now - since >= ms(100));
        let best = self.waiting.iter().max_by_key(|(criticality, name, _)| {
            (*criticality, if congested { *name } else { u64::MAX - name })
        });
        let (criticality, name, until) = *best?;
        self.waiting.retain(|waiting| *waiting != (criticality, name, until));
        self.note_empty();
        if until <= now {
            return Some(Next::Shed(name));
        }
        self.inside += 1;
        Some(Next::Enter(name))
    }

    fn note_empty(&mut self) {
        if self.waiting.is_empty() {
            self.busy_since = None;
        }
    }
}

proptest! {
    #[test]
    fn s722_the_queue_behaves_like_a_sorted_list(
        acts in prop::collection::vec(act(), 0..200),
        capacity in 0usize..6,
    ) {
        let (mut queue, mut model) = (Queue::new(2, capacity), Model::default());
        let (mut now, mut limit, mut name) = (start(), 2, 0);
        let mut tickets: Vec<(Ticket, u64)> = Vec::new();
        for act in acts {
            match act {
                Act::Wait(millis) => now += ms(millis),
                Act::Limit(to) => { limit = to; queue.set_limit(to); }
                Act::Enter(criticality) => {
                    name += 1;
                    let entered = queue.enter();
                    prop_assert_eq!(entered, model.inside < limit && model.waiting.is_empty());
                    if entered {
                        model.inside += 1;
                    } else {
                        let place = queue.wait(now, criticality, None, name);
                        let least = model.waiting.iter().min_by_key(|w| (w.0, w.1)).copied();
                        let shed = least.filter(|least| least.0 < criticality);
                        if model.waiting.len() >= capacity && shed.is_none() {
                            prop_assert_eq!(place, Err(Full));
                        } else {
                            let place = place.unwrap();
                            let must_shed = model.waiting.len() >= capacity;
                            prop_assert_eq!(
                                place.shed, shed.filter(|_| must_shed).map(|shed| shed.1)
                            );
                            model.waiting.retain(|waiting| Some(waiting.1) != place.shed);
                            model.busy_since.get_or_insert(now);
                            prop_assert!(place.until <= now + ms(100));
                            tickets.push((place.ticket, name));
                            model.waiting.push((criticality, name, place.until));
                        }
                    }
                }
                Act::Leave if model.inside > 0 => { queue.leave(); model.inside -= 1; }
                Act::Leave => {}
                Act::Forget(which) if which < tickets.len() => {
                    let (ticket, name) = tickets.remove(which);
                    let was_there = model.waiting.iter().any(|waiting| waiting.1 == name);
                    prop_assert_eq!(queue.forget(ticket), was_there);
                    model.waiting.retain(|waiting| waiting.1 != name);
                    model.note_empty();
                }
                Act::Forget(_) => {}
            }
            loop {
                let next = queue.next(now);
                prop_assert_eq!(&next, &model.next(now, limit));
                if next.is_none() { break; }
            }
            prop_assert!(queue.waiting() <= capacity);
            prop_assert_eq!((queue.inside(), queue.waiting()), (model.inside, model.waiting.len()));
        }
    }
}
