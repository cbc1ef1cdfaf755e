//! Tasks: their context, and when they can be added and cancelled.

mod outcomes;
mod recover;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{AddTaskError, Phase, Reason, Report, Shutdown, TaskCx, TaskSpec};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

/// Returns the tasks of `service-stop` with their outcomes.
fn outcomes(report: &Report) -> Vec<String> {
    let phase = report.phase(Phase::SERVICE_STOP).unwrap();
    phase.tasks.iter().map(|task| format!("{} {}", task.name, task.outcome)).collect()
}

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
    assert_eq!(
        outcomes(&report),
        ["nothing finished", "a result finished", "a bad result failed: no"],
    );
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
    assert_eq!(
        outcomes(&report),
        ["blocking finished", "failing failed: no", "panicking panicked: oh"]
    );
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
