//! The messages to systemd, and their times.

use super::*;
use crate::coordinator::ProgressCounts;
use proptest::prelude::*;

/// Collects the messages, each with the second at which it is sent.
struct Transcript {
    machine: Machine,
    began: Instant,
    text: String,
}

impl Transcript {
    fn new(watchdog: Option<u64>) -> Self {
        let began = crate::time::now();
        let machine = Machine::new(began, watchdog.map(Duration::from_secs));
        Self { machine, began, text: String::new() }
    }

    fn at(&mut self, second: u64, seen: &SupervisorView) {
        let now = self.began + Duration::from_secs(second);
        for message in self.machine.on(now, seen) {
            self.text.push_str(&format!("{second} {message}\n"));
        }
    }
}

fn up(readiness: Readiness) -> SupervisorView {
    let left = Duration::from_secs(100);
    let stage = Stage::Up;
    seen(readiness, stage, ProgressCounts::default(), 0, left)
}

fn seen(
    readiness: Readiness,
    stage: Stage,
    counts: ProgressCounts,
    inside: usize,
    left: Duration,
) -> SupervisorView {
    let (phases, waiting_for) = (BTreeSet::new(), String::new());
    SupervisorView { readiness, stage, counts, inside, phases, waiting_for, left }
}

/// Returns the state of a running shutdown in which `ended` tasks have ended. `waiting_for` begins
/// with the phase.
fn down(ended: usize, waiting_for: &str) -> SupervisorView {
    let phase = waiting_for.split('/').next().unwrap().to_owned();
    SupervisorView {
        stage: Stage::ShuttingDown,
        counts: ProgressCounts { ended, ..ProgressCounts::default() },
        phases: BTreeSet::from([phase]),
        waiting_for: waiting_for.to_owned(),
        ..up(Readiness::Draining)
    }
}

#[test]
fn s78_ready_and_stopping_are_sent_once_and_status_when_it_changes() {
    let mut transcript = Transcript::new(None);
    transcript.at(0, &up(Readiness::Starting));
    transcript.at(1, &up(Readiness::Ready));
    transcript.at(2, &up(Readiness::Ready));
    transcript.at(3, &up(Readiness::Unavailable));
    transcript.at(4, &up(Readiness::Ready));
    transcript.at(5, &down(0, "a/one"));
    transcript.at(6, &down(0, "a/one"));
    transcript.at(7, &down(0, "b/two\nlines"));
    transcript.at(11, &down(0, "b/two"));
    transcript.at(12, &down(0, "b/two"));
    transcript.at(13, &SupervisorView { stage: Stage::Over, ..down(0, "b/two") });
    transcript.at(20, &SupervisorView { stage: Stage::Over, ..down(0, "b/two") });
    expect_test::expect![[r#"
        0 STATUS=starting
        1 READY=1
        1 STATUS=ready
        3 STATUS=unavailable
        4 STATUS=ready
        5 STOPPING=1
        5 STATUS=a/one
        7 STATUS=b/two lines
        12 STATUS=b/two
    "#]]
    .assert_eq(&transcript.text);
    assert_eq!(transcript.machine.due(), None);
}

#[test]
fn s79_more_time_is_requested_only_after_progress() {
    let mut transcript = Transcript::new(None);
    let inside = |inside, seen| SupervisorView { inside, ..seen };
    transcript.at(0, &inside(9, down(0, "a")));
    transcript.at(4, &inside(9, down(0, "a")));
    transcript.at(6, &inside(8, down(0, "a")));
    // The second request is delayed, not lost.
    transcript.at(6, &inside(8, down(1, "a")));
    assert_eq!(transcript.machine.due(), Some(transcript.began + Duration::from_secs(7)));
    transcript.at(7, &inside(8, down(1, "a")));
    // More work is not progress.
    transcript.at(9, &inside(9, down(1, "a")));
    // Never more than the remaining time.
    transcript.at(10, &SupervisorView { left: Duration::from_secs(2), ..inside(9, down(2, "a")) });
    transcript.at(12, &SupervisorView { left: Duration::ZERO, ..inside(9, down(3, "a")) });
    let extends: Vec<_> = transcript.text.lines().filter(|line| line.contains("EXTEND")).collect();
    assert_eq!(
        extends,
        [
            "6 EXTEND_TIMEOUT_USEC=30000000",
            "7 EXTEND_TIMEOUT_USEC=30000000",
            "10 EXTEND_TIMEOUT_USEC=2000000",
        ]
    );
}

#[test]
fn s80_signs_of_life_are_sent_twice_per_interval() {
    let mut transcript = Transcript::new(Some(4));
    for second in 0..4 {
        transcript.at(second, &up(Readiness::Ready));
    }
    for second in 4..7 {
        transcript.at(second, &down(0, "a"));
    }
    transcript.at(8, &SupervisorView { stage: Stage::Over, ..down(0, "a") });
    let alive: Vec<_> = transcript.text.lines().filter(|line| line.contains("WATCHDOG")).collect();
    assert_eq!(alive, ["0", "2", "4", "6", "8"].map(|second| format!("{second} WATCHDOG=1")));
    assert_eq!(transcript.machine.due(), Some(transcript.began + Duration::from_secs(10)));
}

proptest! {
    // All invariants, for random states in random order.
    #[test]
    fn the_invariants_hold_for_any_sequence_of_states(
        steps in prop::collection::vec((0u8..3, any::<bool>(), 0usize..4, 0usize..4, 0u64..60), 0..60)
    ) {
        let began = crate::time::now();
        let mut machine = Machine::new(began, Some(Duration::from_secs(7)));
        let (mut ready, mut stopping, mut ended, mut has_progressed, mut before) = (0, 0, 0, false, 0);
        for (at, (stage, is_ready, more, inside, left)) in (0u64..).zip(steps) {
            let stage = [Stage::Up, Stage::ShuttingDown, Stage::Over][usize::from(stage)];
            ended += more;
            if stage == Stage::ShuttingDown {
                has_progressed |= more > 0 || inside < before || ended > machine.ended;
                before = inside;
            }
            let readiness = if is_ready { Readiness::Ready } else { Readiness::Starting };
            let left = Duration::from_secs(left);
            let counts = ProgressCounts { ended, ..ProgressCounts::default() };
            let mut seen = seen(readiness, stage, counts, inside, left);
            if inside > 1 {
                seen.phases.insert("a".into());
            }
            for message in machine.on(began + Duration::from_secs(at), &seen) {
                match message {
                    Message::Ready => ready += 1,
                    Message::Stopping => stopping += 1,
                    Message::Extend(by) => {
                        prop_assert!(by <= left && !by.is_zero() && has_progressed);
                        has_progressed = false;
                    }
                    Message::Status(_) | Message::Watchdog => {}
                }
            }
            prop_assert!(machine.due().is_none_or(|due| due > began + Duration::from_secs(at)));
        }
        prop_assert!(ready <= 1 && stopping <= 1);
    }
}
