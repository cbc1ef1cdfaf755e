//! When a replica reports, and what.

use super::super::{Cadence, Sent, TICK};
use super::*;
use crate::breaker::{Terms, WindowCount};

#[test]
fn s910_a_snapshot_is_sent_when_it_has_changed_and_every_second() {
    let terms = Terms {
        calls: 20,
        ratio: 0.5,
        witnesses: 2,
        opens_for: secs(5),
        at_most: secs(60),
        probes: 1,
        closes_after: 1,
        lease: secs(2),
    };
    let start = crate::time::now();
    let mut sent = Sent::default();
    let mut send = |millis: u64, is_witness: bool, calls: u64| {
        let sight = WindowCount { calls, failures: 0, is_open: false, generation: 0 };
        let snapshot = sent.snapshot(start + ms(millis), is_witness, &"b".into(), sight, terms);
        snapshot.map(|snapshot| snapshot.calls)
    };
    assert_eq!(send(0, true, 0), None, "nothing to say");
    assert_eq!(send(100, true, 5), Some(5));
    assert_eq!(send(200, true, 5), None);
    assert_eq!(send(1_100, true, 5), Some(5), "the store would remove it");
    assert_eq!(send(1_200, false, 6), Some(0), "taken back");
    assert_eq!(send(3_000, false, 7), None);
    let mut cadence = Cadence::new(start);
    cadence.on_sent(start, 0.5);
    assert_eq!(cadence.due, start + TICK);
    cadence.hurry();
    assert_eq!(cadence.due, start + ms(20));
    for pause in [100, 200, 400, 800, 1_000, 1_000] {
        cadence.on_failure(start);
        assert_eq!(cadence.due, start + ms(pause));
        cadence.hurry();
        assert_eq!(cadence.due, start + ms(pause), "a store that is away is not asked sooner");
    }
}

#[test]
fn s1657_the_pauses_grow_until_the_store_has_answered_for_a_second() {
    let start = crate::time::now();
    let mut cadence = Cadence::new(start);
    for pause in [100, 200, 400] {
        cadence.on_failure(start);
        assert_eq!(cadence.due, start + ms(pause));
        cadence.on_answer(start);
        cadence.on_answer(start + ms(999));
    }
    cadence.on_answer(start + ms(1_000));
    cadence.on_failure(start);
    assert_eq!(cadence.due, start + ms(100));
}
