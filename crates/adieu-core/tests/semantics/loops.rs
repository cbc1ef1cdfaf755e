//! Loops: how they are signalled, restarted and ended.

mod consumer;
mod failures;
mod periodic;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use adieu_core::{
    AddLoopError, Backoff, Config, LoopCx, LoopSpec, Phase, Reason, Report, Shutdown,
};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn sleep(count: u64) {
    tokio::time::sleep(seconds(count)).await;
}

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

fn outcome(report: &Report, phase: Phase, task: &str) -> String {
    report.phase(&phase).unwrap().task(task).unwrap().outcome.to_string()
}

#[tokio::test(start_paused = true)]
async fn s69_a_loop_is_restarted_after_a_pause_that_doubles_and_resets() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let backoff = Backoff::new(seconds(2), seconds(6)).well_after(seconds(100));
    let runs = Arc::new(AtomicU32::new(0));
    let began = timeline.clone();
    let lasts = move |_: LoopCx| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        began.note(format!("run {run}"));
        async move {
            match run {
                0 => Err("no"),
                1 => panic!("no"),
                2 | 3 => Err("no"),
                // The loop has run long enough for its pause to be reset.
                4 => {
                    sleep(100).await;
                    Err("no")
                }
                _ => Ok(()),
            }
        }
    };
    shutdown.add_loop(LoopSpec::new("l").backoff(backoff).seed(7), lasts).unwrap();
    sleep(1_000).await;
    timeline.note("well");
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        0s run 0
        1s 774ms run 1
        4s 219ms run 2
        9s 374ms run 3
        13s 818ms run 4
        1m 54s 935ms run 5
        16m 40s well
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s572_a_loop_that_must_take_no_more_is_not_restarted() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    for (name, crash) in [("early", 0), ("late", 2)] {
        let began = timeline.clone();
        let crashes = move |cx: LoopCx| {
            began.note(format!("{name} runs"));
            async move {
                if crash > 0 {
                    cx.takes_no_more().await;
                }
                sleep(crash).await;
                Err::<(), _>("broken")
            }
        };
        let backoff = Backoff::new(seconds(60), seconds(60));
        shutdown.add_loop(LoopSpec::new(name).backoff(backoff), crashes).unwrap();
    }
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    timeline.note("over");
    expect![[r#"
        0s early runs
        0s late runs
        3s over
    "#]]
    .assert_eq(&timeline.to_string());
    let of = |task| outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, task);
    assert_eq!(of("leave early"), "finished", "its crash was logged before");
    assert_eq!(of("leave late"), "failed: broken");
}

#[tokio::test(start_paused = true)]
async fn s70_a_loop_is_signalled_at_two_levels() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let listens = move |cx: LoopCx| {
        let timeline = noted.clone();
        async move {
            let pass = cx.enter().unwrap().labelled("a long job");
            assert!(cx.is_taking() && cx.may_take().await);
            cx.takes_no_more().await;
            assert!(!cx.is_taking() && !cx.may_take().await && cx.enter().is_err());
            assert!(cx.no_more_token().is_cancelled() && !cx.stop_token().is_cancelled());
            for _ in 0..32 {
                assert_eq!(cx.take(async {}).await, Some(()), "a job that was taken was lost");
            }
            timeline.note("takes no more");
            cx.stops_now().await;
            timeline.note("stops");
            drop(pass);
        }
    };
    shutdown.add_loop("l", listens).unwrap();
    shutdown.add_task(Phase::BEFORE_SERVICE_UNBIND, "wait", async |_| sleep(2).await).unwrap();
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        3s takes no more
        13s stops
    "#]]
    .assert_eq(&timeline.to_string());
    assert_eq!(outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave l"), "finished");
}

#[tokio::test(start_paused = true)]
async fn s70_a_cordon_pauses_a_loop_until_it_is_removed() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let takes = move |cx: LoopCx| {
        let timeline = noted.clone();
        async move {
            while cx.may_take().await {
                timeline.note("takes");
                let taken = cx.take(sleep(10)).await;
                timeline.note(if taken.is_some() { "taken" } else { "paused" });
            }
        }
    };
    shutdown.cordon();
    shutdown.add_loop("l", takes).unwrap();
    sleep(3).await;
    assert!(shutdown.uncordon());
    sleep(14).await;
    shutdown.cordon();
    sleep(5).await;
    assert!(shutdown.uncordon());
    sleep(1).await;
    shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        3s takes
        13s taken
        13s takes
        17s paused
        22s takes
        23s paused
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s71_a_loop_that_does_not_end_is_aborted_joined_and_reported() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let hangs = move |_: LoopCx| {
        let span = noted.start("loop");
        async move {
            let _span = span;
            std::future::pending::<()>().await;
        }
    };
    shutdown.add_loop("l", hangs).unwrap();
    let next = timeline.clone();
    let leave = async move |_| next.note("cluster-leave");
    shutdown.add_task(Phase::CLUSTER_LEAVE, "leave", leave).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        0s loop started
        5s loop dropped
        5s cluster-leave
    "#]]
    .assert_eq(&timeline.to_string());
    let left = outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave l");
    assert_eq!(left, "timed out after 5s");
}

#[tokio::test(start_paused = true)]
async fn s573_no_lame_duck_waits_for_a_loop_and_it_ends_with_its_shutdown() {
    let config = Config::for_tests().lame_duck(seconds(6));
    let timeline = Timeline::new();
    let busy = |name: &'static str| {
        let timeline = timeline.clone();
        move |cx: LoopCx| {
            let span = timeline.start(name);
            async move {
                let _pass = cx.enter();
                cx.takes_no_more().await;
                span.over();
            }
        }
    };
    let ended = Shutdown::configured(config.clone()).unwrap();
    ended.add_loop("l", busy("ended")).unwrap();
    let dropped = Shutdown::configured(config).unwrap();
    dropped.add_loop("l", busy("dropped")).unwrap();
    sleep(1).await;
    ended.run(Reason::Unknown).await.unwrap();
    sleep(1).await;
    drop(dropped);
    sleep(1).await;
    expect![[r#"
        0s ended started
        0s dropped started
        1s ended over
        2s dropped dropped
    "#]]
    .assert_eq(&timeline.to_string());
}

#[test]
fn s574_a_loop_needs_a_runtime_and_a_name() {
    let without = Shutdown::new();
    let nothing = |_: LoopCx| async {};
    let refused = without.add_loop("l", nothing).unwrap_err();
    assert_eq!(refused, AddLoopError::NoRuntime { name: "l".into() });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    assert_eq!(without.add_loop(" ", nothing).unwrap_err(), AddLoopError::EmptyName);
    without.add_loop("l", nothing).unwrap();
    // If one of its tasks is too late, the loop is rejected.
    assert_eq!(without.tasks().len(), 5);
    without.run_from(Phase::SERVICE_STOP, Reason::Unknown).unwrap().wait().unwrap();
    let refused = without.add_loop("late", nothing).unwrap_err();
    assert!(matches!(refused, AddLoopError::Task { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn s38_awaiting_the_shutdown_in_one_of_its_loops_is_an_error() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let (noted, handle) = (timeline.clone(), shutdown.clone());
    let awaits = move |_: LoopCx| {
        let (timeline, shutdown) = (noted.clone(), handle.clone());
        async move {
            let refused = shutdown.run(Reason::Unknown).await.unwrap_err();
            timeline.note(refused.to_string());
        }
    };
    shutdown.add_loop("l", awaits).unwrap();
    assert!(shutdown.completed().await.unwrap().is_clean());
    assert!(timeline.to_string().starts_with("0s "), "{timeline}");
}
