//! Periodic loops: when they tick.

use std::time::Duration;

use adieu_core::{AddLoopError, LoopCx, Periodic, Reason};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

use super::{seconds, shutdown, sleep};

/// Returns the ticks of one minute if each takes `takes` seconds.
async fn ticks(periodic: Periodic, takes: u64) -> String {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let tick = move |_: LoopCx| {
        let span = noted.start("tick");
        async move {
            sleep(takes).await;
            span.over();
        }
    };
    shutdown.add_periodic(periodic, tick).unwrap();
    sleep(62).await;
    timeline.note("down");
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    timeline.to_string()
}

#[tokio::test(start_paused = true)]
async fn s76_the_first_tick_is_random_and_the_others_have_jitter() {
    let periodic = |seed| Periodic::new("p", seconds(20)).seed(seed);
    let (one, two) = (ticks(periodic(1), 0).await, ticks(periodic(2), 0).await);
    assert_ne!(one, two, "replicas do not tick together");
    expect![[r#"
        13s 141ms tick started
        13s 141ms tick over
        33s 280ms tick started
        33s 280ms tick over
        52s 239ms tick started
        52s 239ms tick over
        1m 2s down
    "#]]
    .assert_eq(&one);
    let strict = Periodic::new("p", seconds(25)).jitter(0.0).splay(Duration::ZERO);
    expect![[r#"
        0s tick started
        0s tick over
        25s tick started
        25s tick over
        50s tick started
        50s tick over
        1m 2s down
    "#]]
    .assert_eq(&ticks(strict, 0).await);
}

#[tokio::test(start_paused = true)]
async fn s1418_ticks_do_not_overlap_and_missed_ticks_are_not_repeated() {
    let strict = Periodic::new("p", seconds(10)).jitter(0.0).splay(Duration::ZERO);
    expect![[r#"
        0s tick started
        24s tick over
        34s tick started
        58s tick over
        1m 2s down
    "#]]
    .assert_eq(&ticks(strict.clone(), 24).await);
    expect![[r#"
        0s tick started
        4s tick over
        10s tick started
        14s tick over
        20s tick started
        24s tick over
        30s tick started
        34s tick over
        40s tick started
        44s tick over
        50s tick started
        54s tick over
        1m tick started
        1m 2s down
        1m 4s tick over
    "#]]
    .assert_eq(&ticks(strict, 4).await);
}

#[tokio::test(start_paused = true)]
async fn s76_a_tick_that_fails_or_panics_is_followed_by_the_next() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let mut count = 0;
    let tick = move |_: LoopCx| {
        noted.note(format!("tick {count}"));
        count += 1;
        assert!(count != 1, "before its first await");
        async move { if count == 2 { Err("no") } else { Ok(()) } }
    };
    let strict = Periodic::new("p", seconds(10)).jitter(0.0).splay(Duration::ZERO);
    shutdown.add_periodic(strict, tick).unwrap();
    sleep(25).await;
    shutdown.cordon();
    sleep(10).await;
    assert!(shutdown.uncordon());
    sleep(10).await;
    expect![[r#"
        0s tick 0
        10s tick 1
        20s tick 2
        40s tick 3
    "#]]
    .assert_eq(&timeline.to_string());
    let refused = shutdown.add_periodic(Periodic::new("p", Duration::ZERO), |_| async {});
    assert_eq!(refused.unwrap_err(), AddLoopError::ZeroPeriod { name: "p".into() });
    let refused = shutdown.add_periodic(Periodic::new("p", Duration::MAX), |_| async {});
    assert_eq!(refused.unwrap_err(), AddLoopError::EndlessPeriod { name: "p".into() });
}
