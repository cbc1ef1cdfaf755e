//! How a breaker counts calls, on one thread and on many.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn build(breaker: Breaker, now: Instant) -> (Circuit, Arc<Mutex<Vec<Change>>>) {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&changes);
    (breaker.build(now, None, move |change| lock(&noted).push(change)), changes)
}

fn end(circuit: &Circuit, now: Instant, ended: Ended) {
    circuit.admit(now, || Prober::Process).unwrap().settle(now, ended);
}

#[test]
fn s704_a_breaker_opens_at_the_ratio_of_enough_calls() {
    let now = crate::time::now();
    let (circuit, changes) = build(Breaker::at(0.5).of(20), now);
    (0..10).for_each(|_| end(&circuit, now, Ended::Succeeded));
    (0..9).for_each(|_| end(&circuit, now, Ended::Failed));
    (0..50).for_each(|_| end(&circuit, now, Ended::Neutral));
    assert!(circuit.is_closed(), "19 calls have ended");
    end(&circuit, now, Ended::Failed);
    assert!(!circuit.is_closed() && circuit.admit(now, || Prober::Process).is_err());
    assert!(matches!(lock(&changes)[..], [Change::Opened { .. }]));
}

#[test]
fn s704_a_breaker_is_judged_on_failures_alone() {
    let now = crate::time::now();
    let (circuit, _) = build(Breaker::at(0.5).of(20), now);
    (0..19).for_each(|_| end(&circuit, now, Ended::Failed));
    end(&circuit, now, Ended::Succeeded);
    assert!(circuit.is_closed());
    end(&circuit, now, Ended::Failed);
    assert!(!circuit.is_closed());
}

#[test]
fn s709_closing_forgets_earlier_failures() {
    let now = crate::time::now();
    let breaker = Breaker::at(0.5).of(10).over(secs(60)).opens_for(secs(1));
    let (circuit, changes) = build(breaker, now);
    (0..10).for_each(|_| end(&circuit, now, Ended::Failed));
    let later = now + secs(2);
    end(&circuit, later, Ended::Succeeded);
    assert!(matches!(lock(&changes)[..], [_, Change::HalfOpened, Change::Closed]));
    (0..9).for_each(|_| end(&circuit, later, Ended::Failed));
    assert!(circuit.is_closed(), "only nine failures since it closed");
}

#[test]
fn s710_a_call_from_before_the_outage_neither_closes_nor_opens() {
    let now = crate::time::now();
    let (circuit, _) = build(Breaker::at(1.0).of(1).opens_for(secs(1)), now);
    let slow = circuit.admit(now, || Prober::Process).unwrap();
    end(&circuit, now, Ended::Failed);
    let half_open = now + secs(2);
    let probe = circuit.admit(half_open, || Prober::Process).unwrap();
    slow.settle(half_open, Ended::Succeeded);
    assert!(!circuit.is_closed());
    let failed_before = Admission::new(&circuit, 0, None);
    probe.settle(half_open, Ended::Succeeded);
    assert!(circuit.is_closed());
    failed_before.settle(half_open, Ended::Failed);
    assert!(circuit.is_closed());
}

#[test]
fn s710_a_late_outcome_does_not_erase_current_ones() {
    let now = crate::time::now();
    let (circuit, _) = build(Breaker::at(1.0).of(2).opens_for(secs(1)), now);
    let late = circuit.admit(now, || Prober::Process).unwrap();
    (0..2).for_each(|_| end(&circuit, now, Ended::Failed));
    let later = now + secs(2);
    end(&circuit, later, Ended::Succeeded);
    end(&circuit, later, Ended::Failed);
    late.settle(later, Ended::Failed);
    assert!(circuit.is_closed());
    end(&circuit, later, Ended::Failed);
    assert!(!circuit.is_closed(), "two failures since it closed");
}

#[test]
fn s708_a_probe_that_is_dropped_is_returned() {
    let now = crate::time::now();
    let (circuit, _) = build(Breaker::at(1.0).of(1).opens_for(Duration::from_nanos(1)), now);
    end(&circuit, now, Ended::Failed);
    let later = now + secs(1);
    let probe = circuit.admit(later, || Prober::Process).unwrap();
    assert!(circuit.admit(later, || Prober::Process).is_err());
    drop(probe);
    assert!(circuit.admit(later, || Prober::Process).is_ok());
}

#[test]
fn s712_a_call_that_takes_longer_than_slow_counts_as_failed() {
    let now = crate::time::now();
    let (circuit, _) = build(Breaker::at(0.5).slow(secs(1)), now);
    assert!(!circuit.is_slow(secs(1)) && circuit.is_slow(secs(1) + Duration::from_nanos(1)));
    assert!(!build(Breaker::at(0.5), now).0.is_slow(secs(100)));
}

proptest! {
    // The model is a list of what happened when, which is scanned after each failure.
    #[test]
    fn s704_a_breaker_opens_exactly_when_a_list_of_all_calls_would(
        calls in prop::collection::vec((0u64..900, 0u8..5), 1..200),
        percent in 1u32..=100,
        of in 1u32..30,
    ) {
        let start = crate::time::now();
        let ratio = f64::from(percent) / 100.0;
        let (circuit, _) = build(Breaker::at(ratio).of(of).over(secs(10)), start);
        let (mut at, mut list) = (0, Vec::<(u64, bool)>::new());
        for (later, kind) in calls {
            at += later;
            let now = start + Duration::from_millis(at);
            let ended = match kind { 0 | 1 => Ended::Succeeded, 2 | 3 => Ended::Failed, _ => Ended::Neutral };
            end(&circuit, now, ended);
            if ended != Ended::Neutral {
                list.push((at / 1_000, ended == Ended::Failed));
            }
            let inside: Vec<_> = list.iter().filter(|(bucket, _)| bucket + 9 >= at / 1_000).collect();
            let failures = inside.iter().filter(|(_, failed)| *failed).count();
            let opens = ended == Ended::Failed
                && inside.len() >= of as usize
                && failures as f64 >= ratio * inside.len() as f64;
            prop_assert_eq!(circuit.is_closed(), !opens);
            if opens { return Ok(()); }
        }
    }
}
