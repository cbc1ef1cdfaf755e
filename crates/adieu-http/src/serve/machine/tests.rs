//! Plays scripts of events.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Plays events and ticks. Returns each effect with its time in milliseconds.
fn play(script: &[(u64, Event)]) -> Vec<(u64, Effect)> {
    let start = tokio::time::Instant::now().into_std();
    let mut machine = Machine::new();
    let mut happened = Vec::new();
    for ms in 0..10_000 {
        let now = start + Duration::from_millis(ms);
        let mut on = |machine: &mut Machine, event| {
            happened.extend(machine.on(now, event).into_iter().map(|effect| (ms, effect)));
        };
        for (_, event) in script.iter().filter(|(at, _)| *at == ms) {
            on(&mut machine, *event);
        }
        while machine.due().is_some_and(|due| due <= now) {
            on(&mut machine, Event::Tick);
        }
    }
    happened
}

#[test]
fn stages_follow_the_shutdown_and_flushing_begins_after_the_last_request() {
    let script = [
        (10, Event::Unready),
        (50, Event::Unbind),
        (700, Event::Drained),
        (900, Event::Stop { within: SECOND }),
    ];
    assert_eq!(
        play(&script),
        [
            (10, Effect::Enter(Stage::WindingDown)),
            (50, Effect::CloseListener),
            (50, Effect::Enter(Stage::Unbound)),
            (550, Effect::ReleaseFirstRequests),
            (710, Effect::Enter(Stage::Flushing)),
            (1_900, Effect::Enter(Stage::Dropping)),
        ]
    );
}

#[test]
fn first_requests_are_awaited_for_half_a_second() {
    let happened = play(&[(50, Event::Unbind)]);
    assert_eq!(happened.last(), Some(&(550, Effect::ReleaseFirstRequests)));
}

#[test]
fn flushing_begins_when_all_clients_have_stopped_reading() {
    let script = [(5, Event::Stalled), (50, Event::Unbind), (700, Event::Stalled)];
    assert_eq!(
        play(&script),
        [
            (50, Effect::CloseListener),
            (50, Effect::Enter(Stage::Unbound)),
            (550, Effect::ReleaseFirstRequests),
            (700, Effect::Enter(Stage::Flushing)),
        ]
    );
}

#[test]
fn a_stop_without_the_earlier_events_makes_up_for_them() {
    assert_eq!(
        play(&[(5, Event::Stop { within: SECOND })]),
        [
            (5, Effect::CloseListener),
            (5, Effect::Enter(Stage::Unbound)),
            (5, Effect::CutFirstRequests),
            (5, Effect::Enter(Stage::Flushing)),
            (1_005, Effect::Enter(Stage::Dropping)),
        ]
    );
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Unready),
        Just(Event::Unbind),
        Just(Event::Drained),
        Just(Event::Stalled),
        (0u64..3_000).prop_map(|ms| Event::Stop { within: Duration::from_millis(ms) }),
    ]
}

proptest! {
    /// In any order of events: stages only advance, the listener is closed once, and a stop ends in
    /// time.
    #[test]
    fn stages_only_advance(script in prop::collection::vec((0u64..5_000, event()), 0..8)) {
        let happened = play(&script);
        let stages: Vec<_> = happened.iter().filter_map(|(_, effect)| match effect {
            Effect::Enter(stage) => Some(*stage),
            Effect::CloseListener
            | Effect::ReleaseFirstRequests
            | Effect::CutFirstRequests => None,
        }).collect();
        prop_assert!(stages.is_sorted_by(|a, b| a < b));
        let closed = happened.iter().filter(|(_, effect)| *effect == Effect::CloseListener);
        prop_assert_eq!(closed.count(), usize::from(stages.contains(&Stage::Unbound)));
        for (at, event) in &script {
            let Event::Stop { within } = event else { continue };
            let by = at + u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            let dropped = happened.iter().find(|(_, e)| *e == Effect::Enter(Stage::Dropping));
            prop_assert!(dropped.is_some_and(|(at, _)| *at <= by));
        }
    }
}
