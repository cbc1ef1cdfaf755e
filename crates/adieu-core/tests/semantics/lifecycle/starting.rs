//! How steps start, and when the process is ready.

use std::time::Duration;

use adieu_core::{Lifecycle, Readiness, Reason, StartCx, Step, StepFailure};
use expect_test::expect;

use super::{Notes, build, seconds, shutdown, sleep};
use crate::logging::CapturedLog;

#[tokio::test(start_paused = true)]
async fn s103_waves_start_one_after_another_and_the_steps_of_a_wave_concurrently() {
    let notes = Notes::new();
    let lifecycle = build([
        notes.step("web").depends_on("pg").depends_on("cache"),
        notes.step("pg"),
        notes.step("cache"),
    ]);
    lifecycle.start(&shutdown()).await.unwrap();
    notes.check(expect![[r#"
        0s pg: started
        0s cache: started
        100ms pg: over
        100ms cache: over
        100ms web: started
        200ms web: over
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s103_steps_can_start_and_stop_one_at_a_time_by_priority() {
    let notes = Notes::new();
    let lifecycle = Lifecycle::builder()
        .step(notes.step("web").depends_on("low"))
        .step(notes.step("low"))
        .step(notes.step("high").priority(1))
        .one_at_a_time()
        .build()
        .unwrap();
    let shutdown = shutdown();
    lifecycle.start(&shutdown).await.unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    notes.check(expect![[r#"
        0s high: started
        100ms high: over
        100ms low: started
        200ms low: over
        200ms web: started
        300ms web: over
        300ms stop web: started
        310ms stop web: over
        310ms stop low: started
        320ms stop low: over
        320ms stop high: started
        330ms stop high: over
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s104_a_start_is_cancelled_at_its_timeout_and_then_aborted() {
    let notes = Notes::new();
    let listens = notes
        .starting("listens", async |cx| {
            assert_eq!(cx.step(), "listens");
            assert_eq!(cx.remaining(), seconds(2));
            cx.cancelled().await;
            Err("cancelled in time")
        })
        .start_timeout(seconds(2));
    let error = build([listens]).start(&shutdown()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to start up: step listens did not start: timed out after 2s"
    );
    let deaf = notes.starting("deaf", async |_| std::future::pending().await);
    let error = build([deaf.start_timeout(seconds(2))]).start(&shutdown()).await.unwrap_err();
    assert!(
        matches!(error.cause().unwrap().failure, StepFailure::TimedOut(after) if after == seconds(2))
    );
    notes.check(expect![[r#"
        0s listens: started
        2s listens: over
        2s deaf: started
        4s 200ms deaf: dropped
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s575_a_step_that_comes_up_after_its_timeout_has_failed_and_is_stopped() {
    let notes = Notes::new();
    let late = notes
        .starting("late", async |cx| {
            cx.cancelled().await;
            Ok(())
        })
        .start_timeout(seconds(1));
    let error = build([late]).start(&shutdown()).await.unwrap_err();
    assert!(matches!(error.cause().unwrap().failure, StepFailure::TimedOut(_)));
    notes.check(expect![[r#"
        0s late: started
        1s late: over
        1s stop late: started
        1s 10ms stop late: over
    "#]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s104_a_start_that_blocks_its_thread_is_abandoned_and_named() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let blocks = Step::new("blocks").timeout(Duration::from_millis(50)).start(async move |_| {
        let _ = held.recv();
    });
    let error = build([blocks]).start(&shutdown()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to start up: step blocks did not start: abandoned: still running"
    );
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn s112_the_process_is_not_ready_before_all_steps_have_started() {
    let shutdown = shutdown();
    shutdown.mark_started(); // Too early: the lifecycle has not started.
    let looks = |id: &'static str| {
        Step::new(id).start(async |cx: StartCx| {
            assert_eq!(cx.shutdown().readiness(), Readiness::Starting);
        })
    };
    let lifecycle = build([looks("a"), looks("b").depends_on("a")]);
    lifecycle.start(&shutdown).await.unwrap();
    assert_eq!(shutdown.readiness(), Readiness::Ready);

    let shutdown = self::shutdown();
    let bad = || Step::new("bad").start(async |_| Err::<(), _>("bad luck"));
    build([bad()]).start(&shutdown).await.unwrap_err();
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    assert!(!shutdown.has_started());
    // After a second attempt that succeeds, the process is ready.
    build([looks("a")]).start(&self::shutdown()).await.unwrap();
    build([Step::new("good")]).start(&shutdown).await.unwrap();
    assert_eq!(shutdown.readiness(), Readiness::Ready);
}

#[tokio::test(start_paused = true)]
async fn s117_steps_that_are_still_starting_are_logged_every_five_seconds() {
    let (log, _guard) = CapturedLog::listen();
    let slow = |id: &'static str, takes| Step::new(id).start(async move |_| sleep(takes).await);
    let lifecycle = build([slow("pg", 7_000), slow("cache", 11_000)]);
    lifecycle.start(&shutdown()).await.unwrap();
    expect![[r#"
        INFO still starting steps="pg, cache"
        INFO still starting steps="cache"
        INFO started up steps=2 took=11s
    "#]]
    .assert_eq(&log.lines(3));
}
