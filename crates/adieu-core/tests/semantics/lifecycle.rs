use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use adieu_core::{
    Act, AssembleError, Config, DeploymentProfile, Format, KillAfter, Lifecycle, LifecycleBuilder,
    LoopCx, Outcome, Phase, Problem, Readiness, Reason, Report, Shutdown, Signal, StartCx,
    StartError, StartHook, Started, Step, StopCx, StopHook,
};
use adieu_testkit::timeline::Timeline;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::logging::CapturedLog;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

fn outcome(report: &Report, task: &str) -> String {
    report.phase(Lifecycle::PHASE).unwrap().task(task).unwrap().outcome.to_string()
}

/// Creates steps that take some time to start and stop, and records both.
#[derive(Clone)]
struct Notes(Timeline);

impl Notes {
    fn new() -> Self {
        Self(Timeline::new())
    }

    fn note(&self, what: impl Into<String>) {
        self.0.note(what);
    }

    /// Takes 100 ms to start and 10 ms to stop.
    fn step(&self, id: &'static str) -> Step {
        self.starting(id, async |_| {
            sleep(100).await;
            Ok(())
        })
    }

    fn starting<F, Fut>(&self, id: &'static str, start: F) -> Step
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), &'static str>> + Send + 'static,
    {
        let (starting, stopping) = (self.clone(), self.clone());
        let start = async move |cx: StartCx| {
            let span = starting.0.start(format!("{id}:"));
            let ended = start(cx).await;
            span.over();
            ended
        };
        let stop = async move |(), _: StopCx| {
            let span = stopping.0.start(format!("stop {id}:"));
            sleep(10).await;
            span.over();
        };
        Step::new(id).run(start, stop)
    }

    #[track_caller]
    fn check(&self, expected: Expect) {
        expected.assert_eq(&self.0.to_string());
    }
}

async fn panics<T>(_: T) {
    panic!("a bug")
}

fn build(steps: impl IntoIterator<Item = Step>) -> Lifecycle {
    Lifecycle::builder().steps(steps).build().unwrap()
}

// === assembly ===

#[test]
fn s102_an_invalid_lifecycle_is_an_error_when_it_is_built() {
    fn check(steps: impl IntoIterator<Item = Step>, expected: Expect) {
        let error = Lifecycle::builder().steps(steps).build().unwrap_err();
        expected.assert_eq(&error.to_string());
    }
    let step = |id: &'static str| Step::new(id);
    check([step("a"), step("b"), step("a")], expect!["two steps have the id a: rename one"]);
    check(
        [step("pg").provides("db"), step("mysql").provides("db")],
        expect!["capability db is provided twice, by pg and mysql: rename one"],
    );
    check(
        [step("pg").provides("postgres"), step("shop").requires("postgers")],
        expect!["step shop requires postgers, which no step provides; did you mean postgres?"],
    );
    check([step("shop").requires("db")], expect!["step shop requires db, which no step provides"]);
    check(
        [step("cache"), step("shop").depends_on("cahce")],
        expect!["step shop depends on unknown step cahce; did you mean cache?"],
    );
    check(
        [
            step("a").depends_on("b"),
            step("b").requires("c"),
            step("c").provides("c").depends_on("a"),
        ],
        expect!["steps wait for each other: a -> b -> c -> a"],
    );
    check([step("a").depends_on("a")], expect!["steps wait for each other: a -> a"]);
    check([step(" ")], expect!["a step has an empty id"]);
    check([step("a").timeout(Duration::ZERO)], expect!["step a has a timeout of zero"]);
    check(
        [step("a").start_timeout(Duration::MAX)],
        expect!["step a has a timeout longer than the maximum (one year)"],
    );
    check(
        [step("a").refuse("its lock has no name").refuse("and no store")],
        expect!["step a cannot work: its lock has no name"],
    );

    // A step may require a capability that it provides itself.
    let lifecycle = build([
        step("web").requires("db").depends_on("cache"),
        step("cache").requires("db").priority(1),
        step("pg").provides("db").requires("db"),
        step("queue").requires("db").priority(2),
        step("metrics"),
    ]);
    let waves: Vec<_> = lifecycle.waves().collect();
    assert_eq!(waves, [vec!["pg", "metrics"], vec!["queue", "cache"], vec!["web"]]);
}

// === starting ===

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
        matches!(error.cause().unwrap().problem, Problem::TimedOut(after) if after == seconds(2))
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
    assert!(matches!(error.cause().unwrap().problem, Problem::TimedOut(_)));
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

// === failing ===

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
    assert_eq!(error.others()[1].act, Act::Stop);
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

// === interrupted ===

#[tokio::test(start_paused = true)]
async fn s107_a_signal_cancels_the_start_and_the_shutdown_stops_the_started_steps() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let gate = shutdown.gate("http").unwrap();
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

// === stopping ===

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
    let (gate, noted) = (shutdown.gate("http").unwrap(), notes.clone());
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
    let gate = shutdown.gate("http").unwrap();
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
    assert_eq!(phase.task("stop pg").unwrap().detail.as_deref(), Some("cache to stop"));
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

// === all of it ===

/// How a start behaves, and how it reacts when it is cancelled.
#[derive(Clone, Copy, Debug)]
enum StartKind {
    Starts(u64),
    StartsWhenTold,
    Fails(u64),
    Panics(u64),
    Hangs,
}

/// How a stop behaves.
#[derive(Clone, Copy, Debug)]
enum StopKind {
    Stops(u64),
    Fails(u64),
    Panics,
    Hangs,
}

/// The observed events of steps: a step came up, its stop began, it has stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Up(usize),
    Stopping(usize),
    Stopped(usize),
}

type Log = Arc<Mutex<Vec<Seen>>>;

struct Stopped(Log, usize);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(Seen::Stopped(self.1));
    }
}

fn random_step(at: usize, on: &[usize], kinds: (StartKind, StopKind), log: &Log) -> Step {
    let (up, down) = (Arc::clone(log), Arc::clone(log));
    let start = async move |cx: StartCx| {
        match kinds.0 {
            StartKind::Starts(after) => sleep(after).await,
            StartKind::StartsWhenTold => cx.cancelled().await,
            StartKind::Fails(after) => {
                sleep(after).await;
                return Err("it was made to fail");
            }
            StartKind::Panics(after) => {
                sleep(after).await;
                panic!("it was made to panic");
            }
            StartKind::Hangs => std::future::pending().await,
        }
        up.lock().unwrap().push(Seen::Up(at));
        Ok(())
    };
    let stop = async move |(), _: StopCx| {
        down.lock().unwrap().push(Seen::Stopping(at));
        let _stopped = Stopped(down, at);
        match kinds.1 {
            StopKind::Stops(after) => sleep(after).await,
            StopKind::Fails(after) => {
                sleep(after).await;
                return Err("it was made to fail");
            }
            StopKind::Panics => panic!("it was made to panic"),
            StopKind::Hangs => std::future::pending().await,
        }
        Ok(())
    };
    let step = Step::new(format!("s{at}")).timeout(seconds(2)).run(start, stop);
    on.iter().fold(step, |step, on| step.depends_on(format!("s{on}")))
}

async fn play(
    steps: &[(Vec<usize>, StartKind, StopKind)],
    signal: Option<u64>,
    dropped: Option<u64>,
) {
    let log = Log::default();
    let earlier = |at: usize| -> Vec<usize> {
        let on = steps[at].0.iter();
        if at == 0 { Vec::new() } else { on.map(|on| on % at).collect() }
    };
    let step = |at: usize| random_step(at, &earlier(at), (steps[at].1, steps[at].2), &log);
    let lifecycle = build((0..steps.len()).map(step));
    let shutdown = shutdown();
    let after = async |millis: Option<u64>| match millis {
        Some(millis) => sleep(millis).await,
        None => std::future::pending().await,
    };
    tokio::select! {
        started = lifecycle.start(&shutdown) => {
            let up = log.lock().unwrap().iter().filter(|seen| matches!(seen, Seen::Up(_))).count();
            match started {
                Ok(()) => assert_eq!(up, steps.len()),
                Err(_) => assert_eq!(log.lock().unwrap().len(), 3 * up, "a step was not stopped"),
            }
        }
        () = after(dropped) => {}
        () = async {
            after(signal).await;
            drop(shutdown.run(Reason::Unknown));
            std::future::pending().await
        } => {}
    }
    shutdown.run(Reason::Unknown).await.unwrap();

    let log = log.lock().unwrap();
    let position = |wanted: Seen| log.iter().position(|seen| *seen == wanted);
    for at in 0..steps.len() {
        let count = |wanted: Seen| log.iter().filter(|seen| **seen == wanted).count();
        assert!(count(Seen::Up(at)) <= 1);
        assert_eq!(count(Seen::Stopping(at)), count(Seen::Up(at)), "step {at}: {log:?}");
        assert_eq!(count(Seen::Stopped(at)), count(Seen::Up(at)), "step {at}: {log:?}");
        for on in earlier(at) {
            if let Some(up) = position(Seen::Up(at)) {
                assert!(position(Seen::Up(on)).unwrap() < up, "{log:?}");
                assert!(position(Seen::Stopping(on)) > position(Seen::Stopped(at)), "{log:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn s109_in_random_runs_each_started_step_is_stopped_once_after_its_dependents(
        steps in prop::collection::vec(
            (
                prop::collection::vec(0..10usize, 0..3),
                prop_oneof![
                    8 => (0..1_500u64).prop_map(StartKind::Starts),
                    1 => Just(StartKind::StartsWhenTold),
                    1 => (0..1_500u64).prop_map(StartKind::Fails),
                    1 => (0..1_500u64).prop_map(StartKind::Panics),
                    1 => Just(StartKind::Hangs),
                ],
                prop_oneof![
                    4 => (0..1_500u64).prop_map(StopKind::Stops),
                    1 => (0..1_500u64).prop_map(StopKind::Fails),
                    1 => Just(StopKind::Panics),
                    1 => Just(StopKind::Hangs),
                ],
            ),
            1..7,
        ),
        signal in prop::option::of(0..6_000u64),
        dropped in prop::option::weighted(0.2, 0..6_000u64),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(&steps, signal, dropped));
    }
}

// === readiness ===

#[tokio::test(start_paused = true)]
async fn s112_the_process_is_not_ready_before_all_steps_have_started() {
    let shutdown = shutdown();
    shutdown.started(); // Too early: the lifecycle has not started.
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

// === loops ===

/// Adds a loop that records when it begins and ends.
fn looping(notes: &Notes) -> impl FnOnce(StartCx) -> std::future::Ready<()> + Send + use<> {
    let notes = notes.clone();
    move |cx: StartCx| {
        let work = move |cx: LoopCx| {
            let notes = notes.clone();
            async move {
                let span = notes.0.start("loop:");
                cx.stops_now().await;
                sleep(50).await;
                span.over();
            }
        };
        cx.shutdown().add_loop("orders", work).unwrap();
        std::future::ready(())
    }
}

#[tokio::test(start_paused = true)]
async fn s113_loops_that_a_step_has_added_end_before_steps_are_stopped() {
    for hard in [false, true] {
        let notes = Notes::new();
        let shutdown = shutdown();
        let consumer = Step::new("consumer").depends_on("pg").start(looping(&notes));
        build([notes.step("pg"), consumer]).start(&shutdown).await.unwrap();
        let completion = shutdown.run(Reason::Unknown);
        if hard {
            for _ in 0..3 {
                let _ = shutdown.receive(Signal::TERM);
                sleep(600).await;
            }
        }
        completion.await.unwrap();
        let order: Vec<String> = notes
            .0
            .to_string()
            .lines()
            .filter_map(|line| line.split_once("ms ").map(|(_, what)| what.to_owned()))
            .collect();
        assert_eq!(
            order,
            ["pg: over", "loop: started", "loop: over", "stop pg: started", "stop pg: over"],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn s113_loops_that_a_step_has_added_end_when_start_up_fails() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let lifecycle = build([
        notes.step("pg"),
        Step::new("consumer").depends_on("pg").start(looping(&notes)),
        Step::new("deaf").depends_on("pg").start(async |cx: StartCx| {
            cx.shutdown().add_loop("deaf", async |_| std::future::pending::<()>().await).unwrap();
        }),
        notes
            .starting("bad", async |_| {
                sleep(100).await;
                Err("bad luck")
            })
            .depends_on("consumer"),
    ]);
    let error = lifecycle.start(&shutdown).await.unwrap_err();
    expect![[r#"
        failed to start up: step bad did not start: bad luck
          loop deaf did not end: aborted"#]]
    .assert_eq(&error.to_string());
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms loop: started
        100ms bad: started
        200ms bad: over
        250ms loop: over
        5s 200ms stop pg: started
        5s 210ms stop pg: over
    "#]]);
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}

// === hooks ===

#[tokio::test(start_paused = true)]
async fn s114_a_stop_gets_the_value_of_its_start() {
    let notes = Notes::new();
    let pool: Arc<OnceLock<Arc<str>>> = Arc::default();
    let (filled, used, noted) = (Arc::clone(&pool), Arc::clone(&pool), notes.clone());
    let lifecycle = build([
        Step::new("pool").run(
            async move |_| {
                let pool: Arc<str> = "ten connections".into();
                let _ = filled.set(Arc::clone(&pool));
                Ok::<_, std::io::Error>(pool)
            },
            async move |pool: Arc<str>, cx: StopCx| noted.note(format!("{}: {pool}", cx.step())),
        ),
        Step::new("web").depends_on("pool").start(async move |_| {
            assert_eq!(used.get().map(|pool| &**pool), Some("ten connections"));
        }),
    ]);
    let shutdown = shutdown();
    lifecycle.start(&shutdown).await.unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    notes.check(expect![[r#"
        0s pool: ten connections
    "#]]);
}

/// Wraps a step like a guard that lets one replica run it.
fn guarded(step: Step, notes: &Notes, is_ours: bool) -> Step {
    let notes = notes.clone();
    let wrapped = step.singleton_guarded().extend_start_timeout(seconds(60));
    wrapped.wrap(async move |start: StartHook, cx: StartCx| {
        assert_eq!(cx.remaining(), seconds(90));
        if !is_ours {
            return Ok(Started::skipped("held by another replica"));
        }
        notes.note("locked");
        let started = start.start(cx).await?;
        notes.note("unlocked");
        let noted = notes.clone();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(started.wrap_stop(
            async move |stop: StopHook, cx: StopCx| {
                noted.note("before the stop");
                let ended = stop.stop(cx).await;
                noted.note("after the stop");
                ended
            },
        ))
    })
}

#[tokio::test(start_paused = true)]
async fn s114_hooks_can_be_wrapped_and_skipped_steps_are_not_stopped() {
    let notes = Notes::new();
    let (started, stopped) = (notes.clone(), notes.clone());
    let indexes = || {
        let (started, stopped) = (started.clone(), stopped.clone());
        Step::new("indexes")
            .mutates_shared_state()
            .start(async move |_| started.note("made"))
            .stop(async move |_| stopped.note("stopped"))
    };
    for is_ours in [true, false] {
        let shutdown = shutdown();
        let lifecycle = Lifecycle::builder()
            .profile(DeploymentProfile::Fleet)
            .step(guarded(indexes(), &notes, is_ours))
            .build()
            .unwrap();
        assert_eq!(lifecycle.start_budget(), seconds(90));
        lifecycle.start(&shutdown).await.unwrap();
        assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    }
    notes.check(expect![[r#"
        0s locked
        0s made
        0s unlocked
        0s before the stop
        0s stopped
        0s after the stop
    "#]]);
}

// === profiles ===

#[tokio::test(start_paused = true)]
async fn s115_in_a_fleet_unguarded_changes_of_shared_state_are_an_error() {
    let steps = || {
        [
            Step::new("seed").mutates_shared_state(),
            Step::new("indexes").mutates_shared_state(),
            Step::new("queues").mutates_shared_state().singleton_guarded(),
            Step::new("cache").process_local("a rate limit in memory"),
        ]
    };
    let fleet = || Lifecycle::builder().profile(DeploymentProfile::Fleet);
    let error = fleet().steps(steps()).build().unwrap_err();
    assert_eq!(error, AssembleError::Unguarded { steps: vec!["indexes".into(), "seed".into()] });
    expect!["in a fleet, steps that change shared state must be guarded, so that one replica at a time runs them; unguarded steps: indexes, seed"]
        .assert_eq(&error.to_string());
    assert!(Lifecycle::builder().steps(steps()).build().is_ok());

    let lifecycle = fleet().steps(steps().into_iter().skip(2)).build().unwrap();
    let warning = "step cache: a rate limit in memory is local to this process, but the profile is \
                   a fleet: use a shared one";
    assert_eq!(lifecycle.warnings().collect::<Vec<_>>(), [warning]);
    let (log, _guard) = CapturedLog::listen();
    lifecycle.start(&shutdown()).await.unwrap();
    log.wait_for(|text| text.contains(&format!("WARN lifecycle warning warning=\"{warning}\"")));
}

fn serverless() -> LifecycleBuilder {
    Lifecycle::builder().profile(DeploymentProfile::Serverless)
}

#[tokio::test(start_paused = true)]
async fn s116_serverless_rejects_long_running_steps_and_drains_at_once() {
    let long = |id: &'static str| Step::new(id).requires_long_running();
    let error = serverless().step(long("relay")).step(long("consumer")).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a serverless process does not live on between requests, but these steps need that: consumer, relay"
    );
    assert!(Lifecycle::builder().step(long("relay")).build().is_ok());

    // The lame duck and the drain take no time unless a time is set.
    for (text, expected_ms) in [
        ("", 200),
        ("lame-duck = '3s'\nlame-duck-min = '3s'", 3_200),
        ("phases.service-requests-done.timeout = '2s'", 2_200),
    ] {
        let shutdown = Shutdown::configured(Config::parse(text, Format::Toml).unwrap()).unwrap();
        let gate = shutdown.gate("http").unwrap();
        serverless().step(Step::new("a")).build().unwrap().start(&shutdown).await.unwrap();
        let _pass = gate.enter().unwrap();
        let _ = shutdown.receive(Signal::TERM);
        let report = shutdown.completed().await.unwrap();
        let took = u64::try_from(report.took.as_millis()).unwrap();
        assert!((expected_ms - 200..expected_ms + 100).contains(&took), "{text}: {report}");
        let drain = report.phase(Phase::SERVICE_REQUESTS_DONE).unwrap().task("drain http").unwrap();
        assert!(drain.detail.as_ref().unwrap().starts_with("1 in flight"), "{drain:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s116_an_undeclared_loop_causes_a_warning() {
    let (log, _guard) = CapturedLog::listen();
    let adds = Step::new("adds").start(async |cx: StartCx| {
        cx.shutdown().add_loop("orders", async |cx: LoopCx| cx.stops_now().await).unwrap();
    });
    let shutdown = shutdown();
    serverless().step(adds).build().unwrap().start(&shutdown).await.unwrap();
    let warning = "WARN loop in a serverless process name=\"orders\"";
    log.wait_for(|text| text.contains(warning));
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

// === blocking ===

/// Blocks its thread until the test is over, or for a while.
fn blocks(held: &Arc<Mutex<std::sync::mpsc::Receiver<()>>>) -> impl FnOnce() + Send + use<> {
    let held = Arc::clone(held);
    move || {
        let _ = held.lock().unwrap().recv_timeout(seconds(3));
    }
}

/// As many as there are workers, and the steps that they depend on.
fn blocking_steps(notes: &Notes, held: &Arc<Mutex<std::sync::mpsc::Receiver<()>>>) -> Vec<Step> {
    let brief = Duration::from_millis(100);
    let blocking = ["one", "two"].map(|id| {
        let blocks = blocks(held);
        Step::new(id).depends_on("pg").stop_timeout(brief).stop(async move |_| blocks())
    });
    let others = [notes.step("pg"), notes.step("web").depends_on("pg")];
    others.into_iter().chain(blocking).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_as_many_blocking_stops_as_workers_do_not_delay_the_shutdown() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (notes, held) = (Notes::new(), Arc::new(Mutex::new(held)));
    let shutdown = shutdown();
    build(blocking_steps(&notes, &held)).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.took < Duration::from_millis(1_500), "{report}");
    assert_eq!(outcome(&report, "stop pg"), "finished");
    assert_eq!(outcome(&report, "stop web"), "finished");
    for id in ["stop one", "stop two"] {
        assert_eq!(outcome(&report, id), "failed: abandoned: still running", "{report}");
    }
    assert!(!report.to_string().contains("( to stop)"), "{report}");
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_as_many_blocking_stops_as_workers_do_not_delay_a_rollback() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (notes, held) = (Notes::new(), Arc::new(Mutex::new(held)));
    let bad = Step::new("bad").depends_on("one").start(async |_| Err::<(), _>("bad luck"));
    let steps = blocking_steps(&notes, &held).into_iter().chain([bad]);
    let began = tokio::time::Instant::now();
    let error = build(steps).start(&shutdown()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!(error.others().len(), 2, "{error}");
    assert!(notes.0.to_string().contains("stop pg: over"), "{}", notes.0);
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s104_a_start_that_blocks_the_only_worker_is_abandoned_in_time() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let blocks = blocks(&Arc::new(Mutex::new(held)));
    let step = Step::new("blocks").start_timeout(Duration::from_millis(200));
    let began = tokio::time::Instant::now();
    let error = build([step.start(async move |_| blocks())]).start(&shutdown()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert!(matches!(error.cause().unwrap().problem, Problem::Abandoned), "{error}");
    drop(release);
}

// On a single thread a blocking start cannot be interrupted, but it is detected afterwards.
#[tokio::test]
async fn s575_a_start_that_blocks_the_only_thread_beyond_its_timeout_has_failed() {
    let notes = Notes::new();
    let stops = notes.clone();
    let late = Step::new("late")
        .start_timeout(Duration::from_millis(20))
        .start(async |_| std::thread::sleep(Duration::from_millis(60)))
        .stop(async move |_| stops.note("stopped"));
    let error = build([late]).start(&shutdown()).await.unwrap_err();
    assert!(matches!(error.cause().unwrap().problem, Problem::TimedOut(_)), "{error}");
    assert!(notes.0.to_string().contains("stopped"), "the step that came up was not stopped");
}

#[tokio::test]
async fn s106_a_stop_that_blocks_the_only_thread_beyond_its_timeout_has_timed_out() {
    let late = Step::new("late")
        .stop_timeout(Duration::from_millis(20))
        .stop(async |_| std::thread::sleep(Duration::from_millis(60)));
    let shutdown = shutdown();
    build([late]).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(outcome(&report, "stop late"), "failed: timed out after 20ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s38_awaiting_the_shutdown_in_a_stop_is_an_error() {
    let shutdown = shutdown();
    let awaits = shutdown.clone();
    let step = Step::new("awaits").stop(async move |_| awaits.completed().await.map(drop));
    build([step]).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome = outcome(&report, "stop awaits");
    assert!(outcome.contains("cannot wait for the end of the shutdown"), "{outcome}");
}

/// Blocks every worker until it is dropped.
fn block_workers(workers: usize) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let (blocks, blocked) = std::sync::mpsc::channel();
    for _ in 0..workers {
        let (held, blocks) = (std::sync::Arc::clone(&held), blocks.clone());
        tokio::runtime::Handle::current().spawn(async move {
            blocks.send(()).unwrap();
            let _ = held.lock().unwrap().recv();
        });
    }
    for _ in 0..workers {
        blocked.recv().unwrap();
    }
    release
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_steps_are_stopped_while_the_application_blocks_every_worker() {
    let notes = Notes::new();
    let (shutdown, brief) = (shutdown(), Duration::from_millis(500));
    let noted = |id: &'static str| {
        let notes = notes.clone();
        Step::new(id).stop_timeout(brief).stop(async move |_: StopCx| notes.note(id))
    };
    let lifecycle = build([noted("base"), noted("top").depends_on("base")]);
    lifecycle.start(&shutdown).await.unwrap();
    let release = block_workers(2);
    let report = shutdown.run(Reason::Unknown).wait().unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.took < brief, "{report}");
    let stopped = notes.0.to_string();
    assert!(stopped.find("top") < stopped.find("base") && stopped.contains("base"), "{stopped}");
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s480_the_librarys_own_tasks_run_while_the_application_blocks_every_worker() {
    let brief = Duration::from_millis(400);
    let config = adieu_core::Config::for_tests()
        .lame_duck(brief / 4)
        .phase_timeout(Phase::BEFORE_SERVICE_UNBIND, brief);
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.gate("http").unwrap();
    // As a server does: it accepts its queue on the application's runtime.
    let first = adieu_core::Drain::of(&gate).first(async |_| tokio::task::yield_now().await);
    shutdown.drain(first).unwrap();
    let pass = gate.enter().unwrap();
    let release = block_workers(2);
    let completion = shutdown.run(Reason::Unknown);
    std::thread::sleep(Duration::from_secs(3)); // Longer than all phases except the drain may take.
    drop(pass);
    let report = completion.wait().unwrap();
    assert!(report.is_clean(), "{report}");
    drop(release);
}
