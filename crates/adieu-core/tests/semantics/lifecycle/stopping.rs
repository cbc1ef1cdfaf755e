//! How steps are stopped by the shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{
    Config, Format, KillAfter, Lifecycle, Outcome, Phase, Reason, Shutdown, Signal, StartError,
    Started, Step, StopCx,
};
use expect_test::expect;

use super::{Notes, build, outcome, panics, seconds, shutdown, sleep};
use crate::logging::CapturedLog;

#[tokio::test(start_paused = true)]
async fn s108_steps_are_stopped_in_reverse_waves_after_all_other_phases() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let lifecycle = build([
        notes.step("pg"),
        Step::new("cache").stop(async |_| ()),
        notes.step("web").depends_on("pg").depends_on("cache"),
    ]);
    lifecycle.start(&shutdown).await.unwrap();
    let (gate, noted) = (shutdown.add_gate("http").unwrap(), notes.clone());
    shutdown
        .add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush", async move |_| {
            sleep(100).await;
            noted.note("flushed");
        })
        .unwrap();
    let noted = notes.clone();
    shutdown
        .add_task(Phase::ACTOR_SYSTEM_TERMINATE, "actors", async move |_| noted.note("actors done"))
        .unwrap();
    let noted = notes.clone();
    shutdown
        .add_task(Phase::CLOSE_RESOURCES, "close", async move |_| noted.note("closed"))
        .unwrap();
    let pass = gate.enter().unwrap();
    let work = async {
        sleep(1_000).await;
        notes.note("work done");
        drop(pass);
    };
    let (report, ()) = tokio::join!(shutdown.run(Reason::Unknown), work);
    let report = report.unwrap();
    assert!(report.is_clean(), "{report}");
    let phase = report.phase(Lifecycle::PHASE).unwrap();
    let names: Vec<_> = phase.tasks.iter().map(|task| &*task.name).collect();
    assert_eq!(names, ["stop pg", "stop cache", "stop web"]);
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms web: started
        200ms web: over
        1s 200ms work done
        1s 300ms flushed
        1s 300ms actors done
        1s 300ms closed
        1s 300ms stop web: started
        1s 310ms stop web: over
        1s 310ms stop pg: started
        1s 320ms stop pg: over
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn s108_a_hard_stop_skips_the_drain_but_stops_the_steps() {
    let notes = Notes::new();
    let shutdown = shutdown();
    build([notes.step("pg"), notes.step("web").depends_on("pg")]).start(&shutdown).await.unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let _pass = gate.enter().unwrap();
    for _ in 0..3 {
        let _ = shutdown.receive(Signal::TERM);
        sleep(600).await;
    }
    let report = shutdown.completed().await.unwrap();
    assert_eq!(outcome(&report, "stop pg"), "finished");
    assert_eq!(outcome(&report, "stop web"), "finished");
}

#[tokio::test(start_paused = true)]
async fn s109_started_steps_are_stopped_once_and_others_never() {
    let stops = Arc::new(AtomicUsize::new(0));
    let count = || {
        let stops = Arc::clone(&stops);
        async move |_| {
            stops.fetch_add(1, Ordering::Relaxed);
        }
    };
    let shutdown = shutdown();
    let lifecycle = build([
        Step::new("up").stop(count()),
        Step::new("nothing to stop").start(async |_| ()),
        Step::new("skipped")
            .start(async |_| Started::skipped("another replica runs it"))
            .stop(count()),
        Step::new("both")
            .start({
                let count = count();
                async move |_| Started::stopped_by(count)
            })
            .stop(count()),
    ]);
    // A lifecycle that is never started has no effect on the shutdown.
    drop(build([Step::new("other").stop(count())]));
    let (log, _guard) = CapturedLog::listen();
    lifecycle.start(&shutdown).await.unwrap();
    assert_eq!(
        log.lines(2),
        "INFO step skipped step=\"skipped\" why=\"another replica runs it\"\n\
         INFO started up steps=4 took=0s\n"
    );
    let names: Vec<_> = shutdown.tasks().into_iter().map(|task| task.name.to_string()).collect();
    assert_eq!(names, ["stop up", "stop both"]);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean());
    assert_eq!(stops.load(Ordering::Relaxed), 3);
    let _ = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(stops.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn s110_a_stop_that_hangs_fails_or_panics_is_named_and_the_others_continue() {
    let (log, _guard) = CapturedLog::listen();
    let notes = Notes::new();
    let shutdown = shutdown();
    let lifecycle = build([
        notes.step("pg"),
        Step::new("hangs").depends_on("pg").stop_timeout(seconds(6)).stop(async |cx: StopCx| {
            assert_eq!(cx.remaining(), seconds(6));
            assert_eq!(cx.reason().unwrap().to_string(), "unknown");
            std::future::pending::<()>().await
        }),
        Step::new("fails").depends_on("pg").stop(async |_| Err("still in use")),
        Step::new("panics").depends_on("pg").stop(panics),
        Step::new("web").depends_on("hangs").stop(async |_| sleep(1_000).await),
    ]);
    lifecycle.start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(outcome(&report, "stop web"), "finished");
    assert_eq!(outcome(&report, "stop hangs"), "failed: timed out after 6s");
    assert_eq!(outcome(&report, "stop fails"), "failed: still in use");
    assert_eq!(outcome(&report, "stop panics"), "panicked: a bug");
    assert_eq!(outcome(&report, "stop pg"), "finished");
    assert!(notes.0.to_string().ends_with("7s 310ms stop pg: over\n"), "{}", notes.0);
    let waiting: String =
        log.text().lines().filter(|line| line.contains("still waiting")).collect();
    expect!["INFO still waiting waiting_for=stop-steps/stop pg for 5s (hangs to stop), stop-steps/stop hangs for 5s (its stop) left=6.8s"]
    .assert_eq(&waiting);
}

#[tokio::test(start_paused = true)]
async fn s110_steps_that_were_not_reached_in_time_are_named() {
    let shutdown = shutdown();
    let hang = |id: &'static str| Step::new(id).stop(async |_| std::future::pending::<()>().await);
    let lifecycle = build([hang("pg"), hang("cache").depends_on("pg")]);
    lifecycle.start(&shutdown).await.unwrap();
    shutdown.shorten(seconds(3));
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let phase = report.phase(Lifecycle::PHASE).unwrap();
    assert!(matches!(phase.task("stop cache").unwrap().outcome, Outcome::TimedOut { .. }));
    assert_eq!(phase.task("stop cache").unwrap().detail.as_deref(), Some("its stop"));
    assert!(matches!(phase.task("stop pg").unwrap().outcome, Outcome::TimedOut { .. }));
    assert_eq!(
        phase.task("stop pg").unwrap().detail.as_deref(),
        Some("not reached: the time of the phase had elapsed; cache to stop")
    );
}

#[tokio::test(start_paused = true)]
async fn s111_the_worst_case_is_the_sum_of_the_longest_timeouts() {
    let step = |id: &'static str, start, stop| {
        Step::new(id).start_timeout(seconds(start)).stop_timeout(seconds(stop)).stop(async |_| ())
    };
    let steps = || {
        [
            step("pg", 10, 3),
            step("cache", 2, 4),
            step("web", 1, 2).depends_on("pg"),
            step("jobs", 5, 1).depends_on("pg"),
        ]
    };
    let lifecycle = build(steps());
    assert_eq!(lifecycle.start_budget(), seconds(15));
    assert_eq!(lifecycle.stop_budget(), Duration::from_millis(6_800));
    let shutdown = shutdown();
    lifecycle.start(&shutdown).await.unwrap();
    let check = shutdown.check_budget();
    assert_eq!(check.critical_path.worst_case, Duration::from_millis(6_800));
    assert_eq!(check.critical_path.phases, [Lifecycle::PHASE]);

    // In strict mode a lifecycle that does not fit is an error before any step starts.
    let kill_after = KillAfter::After(seconds(9));
    let strict = Config::for_tests().kill_after(kill_after).strict(true);
    let strict = Shutdown::configured(strict).unwrap();
    let notes = Notes::new();
    let error = build(steps().into_iter().chain([notes.step("x")])).start(&strict).await;
    let error = error.unwrap_err();
    assert!(matches!(error, StartError::NoTask(_)), "{error}");
    notes.check(expect![""]);
    assert_eq!(strict.tasks(), []);
}

#[tokio::test(start_paused = true)]
async fn s111_a_configured_timeout_is_used_and_two_lifecycles_share_the_phase() {
    let config = Config::parse("phases.stop-steps.timeout = '2s'", Format::Toml).unwrap();
    let shutdown = Shutdown::configured(config).unwrap();
    let step = |id: &'static str| Step::new(id).stop(async |_| ());
    build([step("a")]).start(&shutdown).await.unwrap();
    build([step("b")]).start(&shutdown).await.unwrap();
    let timeout = |shutdown: &Shutdown| shutdown.plan().phase(Lifecycle::PHASE).unwrap().timeout();
    assert_eq!(timeout(&shutdown), seconds(2));

    let shutdown = self::shutdown();
    build([step("a")]).start(&shutdown).await.unwrap();
    build([step("b"), step("c").depends_on("b")]).start(&shutdown).await.unwrap();
    build([step("d")]).start(&shutdown).await.unwrap();
    assert_eq!(timeout(&shutdown), Duration::from_millis(10_800));
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(report.phase(Lifecycle::PHASE).unwrap().tasks.len(), 4);
}
