use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{AddTaskError, Config, Outcome, Phase, Reason, Shutdown, Stage, TaskCx, TaskSpec};
use adieu_testkit::{faults, timeline::Timeline};
use expect_test::expect;

use crate::check;

#[tokio::test(start_paused = true)]
async fn s21_a_task_gets_the_reason_its_phase_and_its_deadline() {
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_STOP, "nothing", async |cx: TaskCx| {
            assert_eq!(cx.phase(), &Phase::SERVICE_STOP);
            assert_eq!(cx.reason().name(), "cluster-leaving");
            assert_eq!(cx.remaining(), Duration::from_secs(5));
            assert!(!cx.token().is_cancelled());
        })
        .unwrap();
    shutdown
        .add_task(Phase::SERVICE_STOP, "a result", async |_| Ok::<(), std::fmt::Error>(()))
        .unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "a bad result", async |_| Err::<(), _>("no")).unwrap();
    let report = shutdown.run(Reason::ClusterLeaving).await.unwrap();
    let outcomes: Vec<String> = report
        .phase(Phase::SERVICE_STOP)
        .unwrap()
        .tasks
        .iter()
        .map(|task| format!("{} {}", task.name, task.outcome))
        .collect();
    assert_eq!(outcomes, ["nothing finished", "a result finished", "a bad result failed: no"],);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s21_a_blocking_task_gets_the_same_context() {
    let shutdown = Shutdown::new();
    shutdown
        .add_blocking_task(Phase::SERVICE_STOP, "blocking", |cx| {
            assert_eq!(std::thread::current().name(), Some("adieu blocking"));
            assert_eq!((cx.phase(), cx.reason().name()), (&Phase::SERVICE_STOP, "cluster-leaving"));
            assert!(cx.remaining() <= Duration::from_secs(5) && !cx.token().is_cancelled());
            std::io::Result::Ok(())
        })
        .unwrap();
    shutdown.add_blocking_task(Phase::SERVICE_STOP, "failing", |_| Err::<(), _>("no")).unwrap();
    shutdown
        .add_blocking_task(Phase::SERVICE_STOP, "panicking", |_| -> () { panic!("oh") })
        .unwrap();
    let report = shutdown.run(Reason::ClusterLeaving).await.unwrap();
    let outcomes: Vec<String> = report
        .phase(Phase::SERVICE_STOP)
        .unwrap()
        .tasks
        .iter()
        .map(|task| format!("{} {}", task.name, task.outcome))
        .collect();
    assert_eq!(outcomes, ["blocking finished", "failing failed: no", "panicking panicked: oh"]);
}

#[tokio::test(start_paused = true)]
async fn s22_cancel_removes_a_pending_task_and_never_interrupts() {
    let shutdown = Shutdown::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = |ran: &Arc<AtomicUsize>| {
        let ran = Arc::clone(ran);
        async move |_: TaskCx| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    let pending = shutdown.add_task(Phase::SERVICE_STOP, "pending", count(&ran)).unwrap();
    let running = shutdown.add_task(Phase::SERVICE_STOP, "running", count(&ran)).unwrap();
    assert!(!pending.is_cancelled());
    assert!(pending.cancel() && pending.cancel() && pending.is_cancelled());
    assert_eq!(Arc::strong_count(&ran), 2, "the values of a cancelled task are dropped");

    let completed = shutdown.run(Reason::Unknown);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!running.cancel() && !running.is_cancelled());
    assert!(pending.cancel());
    let report = completed.await.unwrap();
    assert!(!running.cancel());
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(report.phase(Phase::SERVICE_STOP).unwrap().tasks.len(), 1);
}

#[tokio::test]
async fn s22_adding_and_cancelling_repeatedly_uses_bounded_memory() {
    let shutdown = Shutdown::new();
    let kept: Vec<_> = (0..100)
        .map(|n| shutdown.add_task(Phase::SERVICE_STOP, format!("kept {n}"), async |_| ()).unwrap())
        .collect();
    for n in 0..10_000 {
        let handle = shutdown.add_task(Phase::SERVICE_STOP, format!("{n}"), async |_| ()).unwrap();
        assert!(handle.cancel());
    }
    assert_eq!(shutdown.tasks().len(), 100);
    assert!(kept[50].cancel(), "found after empty slots were removed");
    assert_eq!(shutdown.tasks().len(), 99);
}

#[tokio::test(start_paused = true)]
async fn s23_the_same_name_and_function_can_be_added_several_times() {
    let shutdown = Shutdown::new();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let ran = Arc::clone(&ran);
        let count = async move |_: TaskCx| {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        shutdown.add_task(Phase::SERVICE_STOP, "same", count).unwrap();
    }
    let listed: Vec<_> = shutdown.tasks().into_iter().map(|task| (task.phase, task.name)).collect();
    assert_eq!(listed, vec![(Phase::SERVICE_STOP, "same".into()); 3]);
    assert!(shutdown.tasks()[0].added_at.contains("tasks.rs:"));
    shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn s24_an_unknown_phase_or_an_empty_name_is_an_error() {
    let shutdown = Shutdown::new();
    let error = shutdown.add_task("service-stip", "x", async |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "failed to add task x: unknown phase service-stip; known phases: before-service-unbind, "
        ),
        "{text}"
    );

    let error = shutdown.add_task(Phase::SERVICE_STOP, " ", async |_| ()).unwrap_err();
    assert_eq!(error, AddTaskError::EmptyName { phase: Phase::SERVICE_STOP });
    for wrong in [Duration::ZERO, Duration::MAX] {
        let wrong = TaskSpec::new("x").timeout(wrong);
        assert!(shutdown.add_task(Phase::SERVICE_STOP, wrong, async |_| ()).is_err());
    }
    assert!(shutdown.tasks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn s25_a_task_added_during_the_run_runs_or_is_rejected() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "adder", {
            let (shutdown, timeline) = (shutdown.clone(), timeline.clone());
            async move |_| {
                let late =
                    shutdown.add_task(Phase::SERVICE_UNBIND, "late", async |_| ()).unwrap_err();
                let past = shutdown
                    .add_task(Phase::BEFORE_SERVICE_UNBIND, "past", async |_| ())
                    .unwrap_err();
                timeline.note(late.to_string());
                timeline.note(past.to_string());
                let noting = timeline.clone();
                shutdown
                    .add_task(Phase::SERVICE_STOP, "in time", async move |_| noting.note("in time"))
                    .unwrap();
            }
        })
        .unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    assert!(shutdown.add_task(Phase::SERVICE_STOP, "too late", async |_| ()).is_err());
    expect![[r"
        0s failed to add task late: phase service-unbind has already started
        0s failed to add task past: phase before-service-unbind has already started
        0s in time
    "]]
    .assert_eq(&timeline.to_string());
}

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

#[tokio::test(start_paused = true)]
async fn s32_with_recover_the_shutdown_continues_after_the_other_tasks_of_the_phase() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.add_task(Phase::SERVICE_STOP, "fails", faults::fail).unwrap();
    for (phase, name) in [(Phase::SERVICE_STOP, "sibling"), (Phase::CLUSTER_LEAVE, "next")] {
        let timeline = timeline.clone();
        shutdown
            .add_task(phase, name, async move |_| {
                let span = timeline.start(name);
                tokio::time::sleep(Duration::from_secs(2)).await;
                span.over();
            })
            .unwrap();
    }
    shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r"
        0s sibling started
        2s sibling over
        2s next started
        4s next over
    "]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s33_without_recover_a_failure_or_timeout_skips_later_phases() {
    check(
        "bad fails fatal; beside 3s; next 1s after bad; actor-system-terminate 1s",
        expect![[r#"
            0s beside started
            0s bad started
            0s bad over
            3s beside over
            3s shutdown over: aborted by bad; bad failed: it was made to fail; next skipped: bad failed and does not recover; actor-system-terminate skipped: bad failed and does not recover
        "#]],
    )
    .await;
    check(
        "slow 9s timeout 2s fatal; next 1s after slow",
        expect![[r"
            0s slow started
            2s 200ms slow dropped
            2s 200ms shutdown over: aborted by slow; slow timed out after 2s; next skipped: slow failed and does not recover
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s34_an_aborted_shutdown_can_be_resumed() {
    use adieu_core::{Ending, PhaseSpec, ResumeError};
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.add_phase(PhaseSpec::new("bad").recover(false)).unwrap();
    shutdown.add_phase(PhaseSpec::new("skipped").after("bad")).unwrap();
    shutdown.add_phase(PhaseSpec::new("wanted").after("skipped")).unwrap();
    shutdown.add_task("bad", "fails", faults::fail).unwrap();
    for phase in ["skipped", "wanted", "service-stop", "actor-system-terminate"] {
        let timeline = timeline.clone();
        shutdown.add_task(phase, phase, async move |_| timeline.note(phase)).unwrap();
    }
    assert_eq!(shutdown.resume_from("wanted").unwrap_err(), ResumeError::NotAborted);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(report.outcome, Ending::Aborted { phase: "bad".into() });
    assert_eq!(report.exit_code, 71);
    assert!(matches!(shutdown.resume_from("nope"), Err(ResumeError::UnknownPhase(_))));

    // Later than any deadline of the first run.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let resumed = shutdown.resume_from("wanted").unwrap();
    assert_eq!(shutdown.stage(), Stage::ShuttingDown);
    let report = resumed.await.unwrap();
    assert_eq!(report.outcome, Ending::Unclean);
    assert_eq!(
        report.phase("skipped").unwrap().task("skipped").unwrap().outcome.to_string(),
        "skipped: bad failed and does not recover"
    );
    assert!(Arc::ptr_eq(&report, &shutdown.completed().await.unwrap()));
    assert_eq!(shutdown.resume_from("wanted").unwrap_err(), ResumeError::NotAborted);
    let mut notes: Vec<String> = timeline.to_string().lines().map(str::to_owned).collect();
    assert_eq!(notes.pop().unwrap(), "1h actor-system-terminate");
    notes.sort();
    assert_eq!(notes, ["0s service-stop", "1h wanted"]);
}

#[tokio::test(start_paused = true)]
async fn s35_a_disabled_phase_is_skipped_with_its_tasks() {
    check(
        "off 1s disabled; next 1s after off",
        expect![[r"
            0s next started
            1s next over
            1s shutdown over: clean; off skipped: disabled
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s25_a_skipped_phase_rejects_tasks() {
    let shutdown = Shutdown::new();
    let completed = shutdown.run_from(Phase::CLUSTER_LEAVE, Reason::Unknown).unwrap();
    let late = |phase| shutdown.add_task(phase, "late", async |_| ()).unwrap_err();
    assert!(matches!(late(Phase::SERVICE_STOP), AddTaskError::TooLate { .. }));
    completed.await.unwrap();
    assert!(matches!(late(Phase::SERVICE_STOP), AddTaskError::TooLate { .. }));
    assert!(shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(1)).is_err());
}

#[test]
fn s22_concurrent_cancels_return_the_same() {
    for _ in 0..200 {
        let shutdown = Shutdown::new();
        let task = shutdown.add_task(Phase::SERVICE_STOP, "x", async |_| ()).unwrap();
        let returned = std::thread::scope(|scope| {
            let other = scope.spawn(|| task.cancel());
            (task.cancel(), other.join().unwrap())
        });
        assert_eq!(returned, (true, true));
    }
}

// On a multi-threaded runtime the driver of the aborted run may still exist at the resumption.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_an_aborted_shutdown_can_be_resumed_at_once() {
    for _ in 0..50 {
        let shutdown = Shutdown::new();
        shutdown.add_phase(adieu_core::PhaseSpec::new("bad").recover(false)).unwrap();
        shutdown.add_phase(adieu_core::PhaseSpec::new("next").after("bad")).unwrap();
        shutdown.add_task("bad", "bad", faults::fail).unwrap();
        shutdown
            .add_task("next", "slow", async |_| {
                tokio::time::sleep(Duration::from_millis(30)).await;
            })
            .unwrap();
        assert_eq!(shutdown.run(Reason::Unknown).await.unwrap().exit_code, 71);
        let report = shutdown.resume_from("next").unwrap().await.unwrap();
        let slow = &report.phase("next").unwrap().tasks[0];
        assert_eq!(slow.outcome, Outcome::Finished);
    }
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

/// Calls the shutdown when it is dropped.
struct CallsBack(Shutdown);

impl Drop for CallsBack {
    fn drop(&mut self) {
        let _ = self.0.tasks();
    }
}

#[tokio::test]
async fn s24_a_rejected_task_is_dropped_outside_of_locks() {
    use adieu_core::{Config, KillAfter};
    let kill_after = KillAfter::After(Duration::from_secs(4));
    let config = Config::for_tests().kill_after(kill_after).strict(true);
    let shutdown = Shutdown::configured(config).unwrap();
    let calls_back = CallsBack(shutdown.clone());
    let added = shutdown.add_task(Phase::SERVICE_STOP, "x", async move |_| drop(calls_back));
    assert!(matches!(added, Err(AddTaskError::OverBudget { .. })));
    let calls_back = CallsBack(shutdown.clone());
    assert!(shutdown.add_task("nope", "x", async move |_| drop(calls_back)).is_err());
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
