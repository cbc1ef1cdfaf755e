//! How many permits a replica takes from the store, and when.

use proptest::prelude::*;

use super::*;
use crate::rate::{Gcra, Shared, Wait};
use crate::time::nanos_since;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the answer arrives, at which replica, to which question; `None` if it is lost.
type Answer = (u64, usize, Question, Option<(u32, Duration)>);

/// A store, and replicas whose questions and answers take time.
struct Fleet {
    start: Instant,
    limit: Gcra,
    state: Option<Shared>,
    replicas: Vec<Slice>,
    answers: Vec<Answer>,
    /// The replica of each call that waits for an answer, and since when.
    waiting: Vec<(usize, u64)>,
    admitted: Vec<u64>,
    questions: usize,
}

impl Fleet {
    fn new(replicas: usize, permits: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / permits;
        Self {
            start: crate::time::now(),
            limit: Gcra::new(permits, 1_000_000_000, burst),
            state: None,
            replicas: vec![Slice::new(interval); replicas],
            answers: Vec::new(),
            waiting: Vec::new(),
            admitted: Vec::new(),
            questions: 0,
        }
    }

    fn at(&self, micros: u64) -> Instant {
        self.start + Duration::from_micros(micros)
    }

    /// A call at a replica. Its question, if it has one, is answered after `delay`, twice or never.
    fn call(&mut self, micros: u64, replica: usize, delay: u64, fate: u8) {
        self.deliver(micros);
        let now = self.at(micros);
        let (permit, question) = self.replicas[replica].take(now);
        match permit {
            Permit::Granted => self.admitted.push(micros),
            Permit::Ask => self.waiting.push((replica, micros)),
            Permit::Refused(_) => {}
        }
        if let Some(question) = question {
            self.ask(micros, replica, question, delay, fate);
        }
    }

    fn ask(&mut self, micros: u64, replica: usize, question: Question, delay: u64, fate: u8) {
        let now = self.at(micros);
        self.questions += 1;
        let taken =
            self.limit.take_up_to(self.state, nanos_since(self.start, now), question.wanted);
        self.state = taken.state;
        let Wait(wait) = taken.wait;
        let answer = (taken.granted, Duration::from_nanos(wait));
        match fate {
            0 => self.answers.push((micros + 25_000, replica, question, None)),
            1 => {
                self.answers.push((micros + delay, replica, question, Some(answer)));
                self.answers.push((micros + 2 * delay + 7, replica, question, Some(answer)));
            }
            // So late that the question has been given up.
            2 => {
                self.answers.push((micros + 25_000, replica, question, None));
                self.answers.push((micros + 60_000, replica, question, Some(answer)));
            }
            _ => self.answers.push((micros + delay, replica, question, Some(answer))),
        }
    }

    fn deliver(&mut self, micros: u64) {
        loop {
            self.answers.sort_by_key(|answer| answer.0);
            if self.answers.first().is_none_or(|answer| answer.0 > micros) {
                return;
            }
            let (at, replica, question, answer) = self.answers.remove(0);
            let slice = &mut self.replicas[replica];
            match answer {
                Some((granted, wait)) => slice.answered(question, granted, wait),
                None => slice.lost(question),
            }
            self.take_again(at, replica, 1_000);
        }
    }

    /// The calls that have waited for an answer take what it has brought.
    fn take_again(&mut self, micros: u64, replica: usize, delay: u64) {
        let waiting = std::mem::take(&mut self.waiting);
        let (here, elsewhere) = waiting.into_iter().partition(|(at, _)| *at == replica);
        self.waiting = elsewhere;
        let here: Vec<(usize, u64)> = here;
        // After 25 ms a call decides without the store.
        for (_, since) in here.into_iter().filter(|(_, since)| micros - since < 25_000) {
            let now = self.at(micros);
            let (permit, question) = self.replicas[replica].take_again(now);
            match permit {
                Permit::Granted => self.admitted.push(micros),
                Permit::Ask => self.waiting.push((replica, since)),
                Permit::Refused(_) => {}
            }
            if let Some(question) = question {
                self.ask(micros, replica, question, delay, 9);
            }
        }
    }

    /// In any time T at most `permits * (T + 100 ms) + burst`.
    fn check(&self, permits: u32, burst: u32) -> Result<(), TestCaseError> {
        let most =
            |micros: u64| f64::from(permits) * (micros as f64 + 100_000.0) / 1e6 + f64::from(burst);
        for (at, last) in self.admitted.iter().enumerate() {
            for first in (0..=at).rev().step_by(7).chain([0]) {
                let count = (at - first + 1) as f64;
                prop_assert!(count <= most(last - self.admitted[first]) + 1e-6);
            }
        }
        Ok(())
    }
}

/// Mostly a stream of calls, with silences after which what was hoarded would be spent at once.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![60 => 0u64..800, 1 => 100_000u64..900_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // With answers that are late, lost and repeated.
    #[test]
    fn the_fleet_admits_no_more_than_its_rate_however_the_load_is_spread(
        replicas in 1usize..6,
        permits in 50u32..1_000,
        burst in 1u32..30,
        calls in prop::collection::vec((pause(), 0usize..6, 100u64..9_000, 0u8..6), 1..3_000),
    ) {
        let mut fleet = Fleet::new(replicas, permits, burst);
        let mut micros = 0;
        for (later, replica, delay, fate) in calls {
            micros += later;
            fleet.call(micros, replica % replicas, delay, fate);
        }
        fleet.check(permits, burst)?;
    }
}

/// Five replicas and 500/s for ten seconds, with three times as many calls; answers take 1 ms.
fn overloaded(mut replica: impl FnMut(u64) -> usize) -> (f64, f64) {
    let (permits, burst, seconds) = (500, 50, 10);
    let mut fleet = Fleet::new(5, permits, burst);
    for call in 0..1_500 * seconds {
        let micros = call * 1_000_000 / 1_500;
        fleet.call(micros, replica(call), 1_000, 9);
    }
    fleet.check(permits, burst).unwrap();
    let allowed = f64::from(permits) * seconds as f64 + f64::from(burst);
    let questions = fleet.questions as f64 / (1_500 * seconds) as f64;
    (fleet.admitted.len() as f64 / allowed, questions)
}

#[test]
fn an_overloaded_fleet_gets_nearly_all_of_its_rate_with_few_questions() {
    let (even, questions) = overloaded(|call| (call % 5) as usize);
    assert!(even >= 0.97, "{even}");
    assert!(questions < 0.25, "{questions}");
    // All demand moves from replica to replica, every 200 ms.
    let (hopping, questions) = overloaded(|call| (call / 300 % 5) as usize);
    assert!(hopping >= 0.95, "{hopping}");
    assert!(questions < 0.25, "{questions}");
    // How many permits are lost with a replica depends on when the load leaves it.
    let lengths = [200, 230, 260, 310, 340, 370, 400];
    let shares = lengths.map(|length| overloaded(|call| (call / length % 5) as usize).0);
    assert!(shares.iter().all(|share| *share >= 0.9), "{shares:?}");
    assert!(shares.iter().sum::<f64>() / lengths.len() as f64 >= 0.95, "{shares:?}");
    let (hog, questions) =
        overloaded(|call| if call % 4 > 0 { 0 } else { (call / 4 % 4) as usize + 1 });
    assert!(hog >= 0.97, "{hog}");
    assert!(questions < 0.25, "{questions}");
}

#[test]
fn a_refusal_is_remembered_and_costs_no_question() {
    let start = crate::time::now();
    let mut slice = Slice::new(ms(100));
    let (permit, question) = slice.take(start);
    assert_eq!(permit, Permit::Ask);
    slice.answered(question.unwrap(), 0, ms(80));
    for passed in [0, 40, 79] {
        let refused = Permit::Refused(ms(80 - passed));
        assert_eq!(slice.take(start + ms(passed)), (refused, None));
    }
    assert!(matches!(slice.take(start + ms(80)), (Permit::Ask, Some(_))));
}

#[test]
fn an_answer_that_is_repeated_or_late_brings_no_permit() {
    let start = crate::time::now();
    let mut slice = Slice::new(ms(1));
    let first = slice.take(start).1.unwrap();
    slice.lost(first);
    let second = slice.take(start).1.unwrap();
    slice.answered(first, 1, ms(0));
    assert_eq!(slice.take(start).0, Permit::Ask, "the first question had been given up");
    slice.answered(second, 1, ms(0));
    slice.answered(second, 1, ms(0));
    assert_eq!(slice.take(start).0, Permit::Granted);
    assert_ne!(slice.take(start).0, Permit::Granted);
}

#[test]
fn a_slice_is_used_within_100_ms_of_its_question() {
    let start = crate::time::now();
    let mut slice = Slice::new(ms(1));
    let question = slice.take(start).1.unwrap();
    slice.answered(Question { wanted: 10, ..question }, 10, ms(0));
    assert_eq!(slice.take(start + ms(99)).0, Permit::Granted);
    assert_eq!(slice.take(start + ms(100)).0, Permit::Ask);
}

/// At least 3,000 calls at 1.5 times the rate, evenly spread over the replicas, at random times; answers
/// take 1 ms. Returns the share of what one process would admit, and the questions for each call.
fn sparse(permits: u32, burst: u32, replicas: u32) -> (f64, f64) {
    let mut fleet = Fleet::new(replicas as usize, permits, burst);
    let mut random = fastrand::Rng::with_seed(7);
    let calls = (permits * 15).max(3_000);
    let end = u64::from(calls) * 1_000_000 * 2 / 3 / u64::from(permits);
    let mut times: Vec<_> = (0..calls).map(|_| random.u64(..end)).collect();
    times.sort_unstable();
    let (mut alone, mut admitted_alone) = (0, 0);
    for micros in times {
        if let Ok(next) = fleet.limit.take(alone, micros * 1_000) {
            (alone, admitted_alone) = (next, admitted_alone + 1);
        }
        fleet.call(micros, random.u32(..replicas) as usize, 1_000, 9);
    }
    fleet.check(permits, burst).unwrap();
    (
        fleet.admitted.len() as f64 / f64::from(admitted_alone),
        fleet.questions as f64 / f64::from(calls),
    )
}

#[test]
fn s1550_a_fleet_with_few_calls_for_each_replica_gets_nearly_all_of_its_rate() {
    for (permits, burst, replicas) in
        [(1, 1, 1), (10, 5, 1), (10, 5, 5), (30, 5, 20), (100, 10, 20), (500, 50, 100)]
    {
        let (share, questions) = sparse(permits, burst, replicas);
        let limit = format!("{permits}/s, burst {burst}, {replicas} replicas");
        assert!(share >= 0.97, "{limit}: {share}");
        assert!(questions < 1.1, "{limit}: {questions}");
    }
}

#[test]
fn s1551_a_call_that_the_store_has_refused_sends_no_second_question() {
    let start = crate::time::now();
    // A permit every 100 us, and an answer that takes 1 ms.
    let mut slice = Slice::new(Duration::from_micros(100));
    let question = slice.take(start).1.unwrap();
    slice.answered(question, 0, Duration::from_micros(100));
    let (permit, question) = slice.take_again(start + ms(1));
    assert!(matches!(permit, Permit::Refused(_)), "{permit:?}");
    assert_eq!(question, None);
    assert!(matches!(slice.take(start + ms(1)), (Permit::Ask, Some(_))), "the next call may ask");
}

#[test]
fn s1655_a_question_that_was_not_answered_for_50_ms_is_lost() {
    let mut slice = Slice::new(ms(1));
    let start = crate::time::now();
    let (permit, first) = slice.take(start);
    assert_eq!((permit, first.is_some()), (Permit::Ask, true));
    assert_eq!(slice.take(start + ms(49)), (Permit::Ask, None));
    let (permit, second) = slice.take(start + ms(50));
    assert_eq!((permit, second.is_some()), (Permit::Ask, true));
    // The answer to the lost question changes nothing.
    slice.answered(first.unwrap(), 5, Duration::ZERO);
    assert_eq!(slice.take(start + ms(51)).0, Permit::Ask);
    slice.answered(second.unwrap(), 2, Duration::ZERO);
    assert_eq!(slice.take(start + ms(51)).0, Permit::Granted);
}
