//! A shutdown that begins during start-up.

use adieu_core::{Readiness, Reason, Signal, StartError, Step};
use expect_test::expect;

use super::{Notes, build, outcome, seconds, shutdown, sleep};

#[tokio::test(start_paused = true)]
async fn s107_a_signal_cancels_the_start_and_the_shutdown_stops_the_started_steps() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let gate = shutdown.add_gate("http").unwrap();
    let lifecycle = build([
        notes.step("pg").provides("db"),
        notes
            .starting("warm up", async |cx| {
                cx.cancelled().await;
                sleep(50).await;
                Err("not warm")
            })
            .requires("db"),
        notes.step("web").depends_on("warm up"),
    ]);
    fn can_be_spawned<T: Send>(future: T) -> T {
        future
    }
    let starting = can_be_spawned(lifecycle.start(&shutdown));
    let signal = async {
        sleep(1_000).await;
        let pass = gate.enter().unwrap();
        let _ = shutdown.receive(Signal::TERM);
        sleep(2_000).await;
        notes.note("work done");
        drop(pass);
    };
    let (started, ()) = tokio::join!(starting, signal);
    let error = started.unwrap_err();
    assert!(error.is_shutdown() && error.cause().is_none());
    expect![[r#"
        failed to start up: the shutdown began (SIGTERM)
          step warm up did not start: not warm"#]]
    .assert_eq(&error.to_string());

    let report = shutdown.completed().await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(outcome(&report, "stop pg"), "finished");
    // While work drains, the steps that it needs are up.
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms warm up: started
        1s 50ms warm up: over
        3s work done
        3s stop pg: started
        3s 10ms stop pg: over
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s107_after_the_shutdown_has_begun_no_step_starts() {
    let notes = Notes::new();
    let shutdown = shutdown();
    shutdown.run(Reason::Unknown).await.unwrap();
    let error = build([notes.step("pg")]).start(&shutdown).await.unwrap_err();
    assert!(matches!(error, StartError::ShuttingDown));
    assert!(error.is_shutdown());
    assert_eq!(error.to_string(), "failed to start up: the shutdown has begun");
    notes.check(expect![""]);
}

#[tokio::test(start_paused = true)]
async fn s577_a_shutdown_during_a_rollback_waits_for_it_and_reports_it() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let slow = notes.clone();
    let lifecycle = build([
        notes.step("pg"),
        Step::new("slow").depends_on("pg").stop(async move |_| {
            let span = slow.0.start("stop slow:");
            sleep(2_000).await;
            span.over();
            Err("lost a page")
        }),
        Step::new("bad").depends_on("slow").start(async |_| Err::<(), _>("bad luck")),
    ]);
    let signal = async {
        sleep(1_000).await;
        shutdown.run(Reason::Unknown).await.unwrap()
    };
    let (started, report) = tokio::join!(lifecycle.start(&shutdown), signal);
    let error = started.unwrap_err();
    assert_eq!(&*error.cause().unwrap().name, "bad");
    assert_eq!(error.others()[0].to_string(), "step slow did not stop: lost a page");
    assert_eq!(outcome(&report, "stop slow"), "failed: lost a page");
    assert_eq!(outcome(&report, "stop pg"), "finished");
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms stop slow: started
        2s 100ms stop slow: over
        2s 100ms stop pg: started
        2s 110ms stop pg: over
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s578_if_the_start_future_is_dropped_the_shutdown_stops_the_started_steps() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let lifecycle = build([
        notes.step("pg"),
        notes.starting("hangs", async |_| std::future::pending().await).depends_on("pg"),
        notes.step("web").depends_on("hangs"),
    ]);
    let impatient = tokio::time::timeout(seconds(1), lifecycle.start(&shutdown)).await;
    assert!(impatient.is_err());
    sleep(100).await;
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(outcome(&report, "stop pg"), "finished");
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms hangs: started
        1s hangs: dropped
        1s 100ms stop pg: started
        1s 110ms stop pg: over
    "#]]);
}
