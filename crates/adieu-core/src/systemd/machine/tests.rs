use super::*;
use crate::coordinator::Moves;
use proptest::prelude::*;

/// What is said, with the second at which it is.
struct Told {
    machine: Machine,
    began: Instant,
    text: String,
}

impl Told {
    fn new(watchdog: Option<u64>) -> Self {
        let began = crate::time::now();
        let machine = Machine::new(began, watchdog.map(Duration::from_secs));
        Self { machine, began, text: String::new() }
    }

    fn at(&mut self, second: u64, seen: &Seen) {
        let now = self.began + Duration::from_secs(second);
        for message in self.machine.on(now, seen) {
            self.text.push_str(&format!("{second} {message}\n"));
        }
    }
}

fn up(readiness: Readiness) -> Seen {
    let left = Duration::from_secs(100);
    let stage = Stage::Up;
    seen(readiness, stage, Moves::default(), 0, left)
}

fn seen(readiness: Readiness, stage: Stage, moves: Moves, inside: usize, left: Duration) -> Seen {
    let (phases, waiting_for) = (BTreeSet::new(), String::new());
    Seen { readiness, stage, moves, inside, phases, waiting_for, left }
}

/// In a shutdown in which so many tasks have ended; what is waited for begins with its phase.
fn down(ended: usize, waiting_for: &str) -> Seen {
    let phase = waiting_for.split('/').next().unwrap().to_owned();
    Seen {
        stage: Stage::ShuttingDown,
        moves: Moves { ended, ..Moves::default() },
        phases: BTreeSet::from([phase]),
        waiting_for: waiting_for.to_owned(),
        ..up(Readiness::Draining)
    }
}

#[test]
fn s78_ready_and_stopping_are_said_once_and_status_when_it_changes() {
    let mut told = Told::new(None);
    told.at(0, &up(Readiness::Starting));
    told.at(1, &up(Readiness::Ready));
    told.at(2, &up(Readiness::Ready));
    told.at(3, &up(Readiness::Unavailable));
    told.at(4, &up(Readiness::Ready));
    told.at(5, &down(0, "a/one"));
    told.at(6, &down(0, "a/one"));
    told.at(7, &down(0, "b/two\nlines"));
    told.at(11, &down(0, "b/two"));
    told.at(12, &down(0, "b/two"));
    told.at(13, &Seen { stage: Stage::Over, ..down(0, "b/two") });
    told.at(20, &Seen { stage: Stage::Over, ..down(0, "b/two") });
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
    .assert_eq(&told.text);
    assert_eq!(told.machine.due(), None);
}

#[test]
fn s79_more_time_is_asked_for_only_while_something_ends() {
    let mut told = Told::new(None);
    let inside = |inside, seen| Seen { inside, ..seen };
    told.at(0, &inside(9, down(0, "a")));
    told.at(4, &inside(9, down(0, "a")));
    told.at(6, &inside(8, down(0, "a")));
    // Not at once again, but it is not forgotten.
    told.at(6, &inside(8, down(1, "a")));
    assert_eq!(told.machine.due(), Some(told.began + Duration::from_secs(7)));
    told.at(7, &inside(8, down(1, "a")));
    // More work is not progress.
    told.at(9, &inside(9, down(1, "a")));
    // No more than is left.
    told.at(10, &Seen { left: Duration::from_secs(2), ..inside(9, down(2, "a")) });
    told.at(12, &Seen { left: Duration::ZERO, ..inside(9, down(3, "a")) });
    let extends: Vec<_> = told.text.lines().filter(|line| line.contains("EXTEND")).collect();
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
fn s80_it_is_said_to_be_alive_twice_as_often_as_it_must() {
    let mut told = Told::new(Some(4));
    for second in 0..4 {
        told.at(second, &up(Readiness::Ready));
    }
    for second in 4..7 {
        told.at(second, &down(0, "a"));
    }
    told.at(8, &Seen { stage: Stage::Over, ..down(0, "a") });
    let alive: Vec<_> = told.text.lines().filter(|line| line.contains("WATCHDOG")).collect();
    assert_eq!(alive, ["0", "2", "4", "6", "8"].map(|second| format!("{second} WATCHDOG=1")));
    assert_eq!(told.machine.due(), Some(told.began + Duration::from_secs(10)));
}

proptest! {
    // All invariants, whatever is seen in whatever order.
    #[test]
    fn it_asks_for_no_more_than_it_may(
        steps in prop::collection::vec((0u8..3, any::<bool>(), 0usize..4, 0usize..4, 0u64..60), 0..60)
    ) {
        let began = crate::time::now();
        let mut machine = Machine::new(began, Some(Duration::from_secs(7)));
        let (mut ready, mut stopping, mut ended, mut moved, mut before) = (0, 0, 0, false, 0);
        for (at, (stage, is_ready, more, inside, left)) in (0u64..).zip(steps) {
            let stage = [Stage::Up, Stage::ShuttingDown, Stage::Over][usize::from(stage)];
            ended += more;
            if stage == Stage::ShuttingDown {
                moved |= more > 0 || inside < before || ended > machine.ended;
                before = inside;
            }
            let readiness = if is_ready { Readiness::Ready } else { Readiness::Starting };
            let left = Duration::from_secs(left);
            let moves = Moves { ended, ..Moves::default() };
            let mut seen = seen(readiness, stage, moves, inside, left);
            if inside > 1 {
                seen.phases.insert("a".into());
            }
            for message in machine.on(began + Duration::from_secs(at), &seen) {
                match message {
                    Message::Ready => ready += 1,
                    Message::Stopping => stopping += 1,
                    Message::Extend(by) => {
                        prop_assert!(by <= left && !by.is_zero() && moved);
                        moved = false;
                    }
                    Message::Status(_) | Message::Watchdog => {}
                }
            }
            prop_assert!(machine.due().is_none_or(|due| due > began + Duration::from_secs(at)));
        }
        prop_assert!(ready <= 1 && stopping <= 1);
    }
}
