//! How the tasks of a phase run together, and which outcome each has.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Config, Outcome, Phase, Reason, Shutdown, TaskSpec};
use adieu_testkit::faults;
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

use crate::check;

// Two tasks block both workers before their first `await`. The timer of the phase still fires, and a
// blocking task of the same phase is not delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s26_a_task_that_blocks_before_its_first_await_delays_no_timer() {
    let shutdown = Shutdown::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(50)).unwrap();
    for name in ["one", "two"] {
        let held = Arc::clone(&held);
        shutdown
            .add_task(Phase::SERVICE_STOP, name, async move |_| {
                let _ = held.lock().unwrap().recv();
            })
            .unwrap();
    }
    shutdown.add_blocking_task(Phase::SERVICE_STOP, "sibling", |_| ()).unwrap();
    // Waits outside of the runtime, whose workers are blocked.
    let completed = shutdown.run(Reason::Unknown);
    let report = std::thread::spawn(move || completed.wait()).join().unwrap().unwrap();
    drop(release);
    let tasks: Vec<_> = report
        .phase(Phase::SERVICE_STOP)
        .unwrap()
        .tasks
        .iter()
        .map(|task| task.outcome.clone())
        .collect();
    assert_eq!(tasks[..2], [Outcome::Abandoned, Outcome::Abandoned]);
}

#[tokio::test(start_paused = true)]
async fn s26_the_tasks_of_a_phase_run_concurrently() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    for (name, secs) in [("slow", 3), ("quick", 1)] {
        let timeline = timeline.clone();
        shutdown
            .add_task(Phase::SERVICE_STOP, name, async move |_| {
                let span = timeline.start(name);
                tokio::time::sleep(Duration::from_secs(secs)).await;
                span.over();
            })
            .unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(report.took, Duration::from_secs(3));
    expect![[r"
        0s slow started
        0s quick started
        1s quick over
        3s slow over
    "]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s27_a_phase_is_over_when_its_tasks_are() {
    check(
        "fails-early fails; next 1s after fails-early",
        expect![[r"
            0s fails-early started
            0s fails-early over
            0s next started
            1s next over
            1s shutdown over: unclean; fails-early failed: it was made to fail
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s28_a_task_may_have_less_time_than_its_phase() {
    check(
        "a hangs own 1s timeout 4s; b listens own 2s timeout 4s; c 1s own 9s; end 1s after a, b, c",
        expect![[r#"
            0s c started
            0s b started
            0s a started
            1s c over
            1s 200ms a dropped
            2s b over
            2s end started
            3s end over
            3s shutdown over: unclean; a timed out after 1s; b timed out after 2s
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s29_failure_panic_and_timeout_are_different_outcomes() {
    check(
        "failing fails; panicking panics; hanging hangs timeout 1s",
        expect![[r"
            0s hanging started
            0s panicking started
            0s panicking dropped
            0s failing started
            0s failing over
            1s 200ms hanging dropped
            1s 200ms shutdown over: unclean; failing failed: it was made to fail; panicking panicked: it was made to panic; hanging timed out after 1s
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s30_no_task_runs_during_a_later_phase() {
    check(
        "deaf hangs timeout 2s; next 1s after deaf",
        expect![[r"
            0s deaf started
            2s 200ms deaf dropped
            2s 200ms next started
            3s 200ms next over
            3s 200ms shutdown over: unclean; deaf timed out after 2s
        "]],
    )
    .await;
    check(
        "hears listens timeout 2s; next 1s after hears",
        expect![[r#"
            0s hears started
            2s hears over
            2s next started
            3s next over
            3s shutdown over: unclean; hears timed out after 2s
        "#]],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s31_a_blocking_task_that_does_not_end_is_abandoned() {
    let shutdown = Shutdown::new();
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(50)).unwrap();
    shutdown.add_blocking_task(Phase::SERVICE_STOP, "stuck", faults::block).unwrap();
    shutdown
        .add_blocking_task(Phase::SERVICE_STOP, "listens", |cx| {
            while !cx.token().is_cancelled() {
                std::thread::yield_now();
            }
        })
        .unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let phase = report.phase(Phase::SERVICE_STOP).unwrap();
    assert_eq!(phase.task("stuck").unwrap().outcome, Outcome::Abandoned);
    assert!(matches!(phase.task("listens").unwrap().outcome, Outcome::TimedOut { .. }));
    assert_eq!(
        phase.outcome,
        Outcome::Abandoned,
        "the outcome of a phase is the worst of its tasks"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s31_abandoned_threads_do_not_count_against_later_phases() {
    let shutdown = Shutdown::new();
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(50)).unwrap();
    for _ in 0..300 {
        shutdown.add_blocking_task(Phase::SERVICE_STOP, "stuck", faults::block).unwrap();
    }
    shutdown.add_blocking_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush", |_| ()).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let flush = &report.phase(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE).unwrap().tasks[0];
    assert_eq!(flush.outcome, Outcome::Finished);
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor that panics");
    }
}

/// Ends at once, and panics when it is dropped after that.
struct EndsBadly(Bomb);

impl Future for EndsBadly {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let _ = &self.0;
        std::task::Poll::Ready(())
    }
}

#[derive(Debug)]
struct BadError {
    _bomb: BombInDebug,
}

#[derive(Debug)]
struct BombInDebug;

impl Drop for BombInDebug {
    fn drop(&mut self) {
        panic!("an error that panics when it is dropped");
    }
}

impl std::fmt::Display for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bad error")
    }
}

impl std::error::Error for BadError {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s196_a_destructor_that_panics_fails_only_its_own_task() {
    // Long enough for a busy machine to start 256 threads: the tasks that wait for a thread must time
    // out before these threads are abandoned.
    let config = Config::for_tests()
        .phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(2))
        .phase_timeout(Phase::BEFORE_SERVICE_UNBIND, Duration::from_secs(20));
    let shutdown = Shutdown::configured(config).unwrap();
    let early = Phase::BEFORE_SERVICE_UNBIND;
    shutdown.add_task(&early, "ends badly", |_| EndsBadly(Bomb)).unwrap();
    let fails = async |_| Err::<(), _>(BadError { _bomb: BombInDebug });
    shutdown.add_task(&early, "bad error", fails).unwrap();
    let throws = async |_| -> () { std::panic::panic_any(Bomb) };
    shutdown.add_task(&early, "bad payload", throws).unwrap();
    shutdown
        .add_blocking_task(&early, "thread", |_| -> () { std::panic::panic_any(Bomb) })
        .unwrap();
    let hangs = async |_| {
        let _bomb = Bomb;
        std::future::pending::<()>().await
    };
    shutdown.add_task(Phase::SERVICE_STOP, "aborted", hangs).unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    // As many as there may be threads, so that further tasks wait for a thread and are dropped.
    for _ in 0..256 {
        let held = std::sync::Arc::clone(&held);
        let block = move |_| {
            let _ = held.lock().unwrap().recv();
        };
        shutdown.add_blocking_task(Phase::SERVICE_STOP, "blocks", block).unwrap();
    }
    for _ in 0..2 {
        let bomb = Bomb;
        let waits = TaskSpec::new("waits").timeout(Duration::from_millis(50));
        shutdown.add_blocking_task(Phase::SERVICE_STOP, waits, move |_| drop(bomb)).unwrap();
    }
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    shutdown
        .add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "close", async |_| {
            let _ = closed.send(());
        })
        .unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    is_closed.await.expect("the later phase should have run");
    assert!(report.took < Duration::from_secs(10), "{report}");
    let outcome = |phase: &Phase, task: &str| {
        report.phase(phase).unwrap().task(task).unwrap().outcome.to_string()
    };
    assert_eq!(outcome(&early, "ends badly"), "panicked: a destructor that panics");
    assert_eq!(outcome(&early, "bad error"), "panicked: an error that panics when it is dropped");
    assert_eq!(outcome(&early, "bad payload"), "panicked: a panic without a message");
    assert_eq!(outcome(&early, "thread"), "panicked: a panic without a message");
    assert!(outcome(&Phase::SERVICE_STOP, "aborted").starts_with("timed out"), "{report}");
    assert!(outcome(&Phase::SERVICE_STOP, "waits").starts_with("timed out"), "{report}");
    drop(release);
}

// On a single thread a blocking task cannot be cancelled, but it is detected afterwards.
#[tokio::test]
async fn s30_a_task_that_blocks_the_only_thread_beyond_its_timeout_has_timed_out() {
    let config = Config::for_tests().phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(20));
    let shutdown = Shutdown::configured(config).unwrap();
    let blocks = async |_| std::thread::sleep(Duration::from_millis(60));
    shutdown.add_task(Phase::SERVICE_STOP, "blocks", blocks).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome = &report.phase(Phase::SERVICE_STOP).unwrap().outcome;
    assert_eq!(*outcome, Outcome::TimedOut { after: Duration::from_millis(20) }, "{report}");
}
