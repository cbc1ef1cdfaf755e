//! A step that fails to start: the others are stopped.

use std::time::Duration;

use adieu_core::{Lifecycle, Reason, StartCx, Step, StepAction, StopCx};
use expect_test::expect;

use super::{Notes, build, panics, seconds, shutdown, sleep};

#[tokio::test(start_paused = true)]
async fn s105_if_a_step_fails_the_started_steps_are_stopped_in_reverse() {
    let notes = Notes::new();
    let waits = notes.clone();
    let lifecycle = build([
        notes.step("pg").provides("db"),
        notes.step("cache").requires("db"),
        notes
            .starting("broker", async |_| {
                sleep(150).await;
                Err("connection refused")
            })
            .requires("db"),
        notes
            .starting("search", async move |cx| {
                cx.cancelled().await;
                waits.note("search is cancelled");
                std::future::pending().await
            })
            .requires("db"),
        notes.step("web").depends_on("broker"),
    ]);
    let shutdown = shutdown();
    let error = lifecycle.start(&shutdown).await.unwrap_err();
    expect![[r#"
        failed to start up: step broker did not start: connection refused
          step search did not start: cancelled"#]]
    .assert_eq(&error.to_string());
    assert_eq!(&*error.cause().unwrap().name, "broker");
    assert_eq!(error.cause().unwrap().error().unwrap().to_string(), "connection refused");
    assert!(!error.is_shutdown());
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms cache: started
        100ms broker: started
        100ms search: started
        200ms cache: over
        250ms broker: over
        250ms search is cancelled
        450ms search: dropped
        450ms stop cache: started
        460ms stop cache: over
        460ms stop pg: started
        470ms stop pg: over
    "#]]);

    // A step that was stopped in the rollback is not stopped again, and not in the report.
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean());
    assert_eq!(report.phase(Lifecycle::PHASE).unwrap().tasks, []);
}

#[tokio::test(start_paused = true)]
async fn s105_the_error_contains_the_first_failure_as_cause_and_all_others() {
    let lifecycle = build([
        Step::new("slow").start_timeout(seconds(1)).start(async |cx: StartCx| {
            cx.cancelled().await;
            sleep(100).await;
            Err::<(), _>("not in time")
        }),
        Step::new("sibling").start(async |cx: StartCx| {
            cx.cancelled().await;
            Err::<(), _>("because of the other")
        }),
        Step::new("pg").stop(async |_| Err("still in use")),
        Step::new("cache").stop(panics),
        Step::new("hangs").stop(async |_| std::future::pending::<()>().await),
    ]);
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    expect![[r#"
        failed to start up: step slow did not start: timed out after 1s
          step sibling did not start: because of the other
          step pg did not stop: still in use
          step cache did not stop: panicked: a bug
          step hangs did not stop: timed out after 5s"#]]
    .assert_eq(&error.to_string());
    assert_eq!(error.others().len(), 4);
    assert_eq!(error.others()[1].action, StepAction::Stop);
}

#[tokio::test(start_paused = true)]
async fn s105_a_panic_in_a_start_is_a_failure() {
    let notes = Notes::new();
    let lifecycle = build([notes.step("pg"), Step::new("bug").depends_on("pg").start(panics)]);
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to start up: step bug did not start: panicked: a bug");
    assert!(notes.0.to_string().ends_with("stop pg: over\n"));
}

#[tokio::test(start_paused = true)]
async fn s106_in_a_rollback_each_stop_is_bounded_and_a_wave_stops_concurrently() {
    let notes = Notes::new();
    let hang = |id: &'static str| {
        let notes = notes.clone();
        Step::new(id).depends_on("pg").stop_timeout(seconds(2)).stop(async move |cx: StopCx| {
            let _span = notes.0.start(format!("stop {id}:"));
            assert_eq!(cx.remaining(), seconds(2));
            assert!(cx.reason().is_none(), "a rollback has no reason");
            cx.cancelled().await;
            notes.note(format!("{id} is cancelled"));
            std::future::pending::<()>().await
        })
    };
    let lifecycle = build([
        notes.step("pg"),
        hang("one"),
        hang("two"),
        Step::new("bad").depends_on("one").start(async |_| Err::<(), _>("bad luck")),
    ]);
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    assert_eq!(error.others().len(), 2);
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms stop one: started
        100ms stop two: started
        2s 100ms one is cancelled
        2s 100ms two is cancelled
        2s 300ms stop one: dropped
        2s 300ms stop two: dropped
        2s 300ms stop pg: started
        2s 310ms stop pg: over
    "#]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s576_a_stop_that_blocks_its_thread_does_not_delay_other_stops() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let notes = Notes::new();
    let brief = Duration::from_millis(50);
    let lifecycle = build([
        notes.step("pg").stop_timeout(10 * brief),
        Step::new("blocks").depends_on("pg").stop_timeout(brief).stop(async move |_| {
            let _ = held.recv();
        }),
        Step::new("bad").depends_on("blocks").start(async |_| Err::<(), _>("bad luck")),
    ]);
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    expect![[r#"
        failed to start up: step bad did not start: bad luck
          step blocks did not stop: abandoned: still running"#]]
    .assert_eq(&error.to_string());
    assert!(notes.0.to_string().contains("stop pg: over"));
    drop(release);
}
