use std::time::Duration;

use adieu_core::{
    AddTaskError, Config, KillAfter, Phase, Reason, Shutdown, SignalError, TaskCx, TaskSpec,
};
use expect_test::expect;

use crate::check;

fn limited(kill_after: u64, strict: bool) -> Shutdown {
    let kill_after = KillAfter::After(Duration::from_secs(kill_after));
    Shutdown::configured(Config::for_tests().kill_after(kill_after).strict(strict)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn s41_a_phase_takes_no_longer_than_its_tasks_may() {
    let shutdown = limited(30, false);
    let seconds = Duration::from_secs;
    let worst = || shutdown.check_budget().critical_path.worst_case;
    let add = |timeout: Option<u64>| {
        let task = TaskSpec::new("task");
        let task = timeout.map_or(task.clone(), |timeout| task.timeout(seconds(timeout)));
        shutdown.add_task(Phase::SERVICE_UNBIND, task, async |_| ()).unwrap()
    };
    let _one = add(Some(1));
    assert_eq!(worst(), seconds(1));
    let _two = add(Some(2));
    assert_eq!(worst(), seconds(2));
    let _long = add(Some(60));
    assert_eq!(worst(), seconds(5), "nor longer than the phase");
    let other = limited(30, false);
    other
        .add_task(Phase::SERVICE_STOP, TaskSpec::new("a").timeout(seconds(1)), async |_| ())
        .unwrap();
    other.add_task(Phase::SERVICE_STOP, "b", async |_| ()).unwrap();
    assert_eq!(
        other.check_budget().critical_path.worst_case,
        seconds(5),
        "one has no time of its own"
    );
}

#[tokio::test(start_paused = true)]
async fn s41_the_worst_case_is_compared_with_what_the_platform_allows() {
    // 30 s less its margin is 27 s; three phases of 5 s and the last of 10 s with the reserve
    // of 3 s are 28 s.
    let phases = [
        Phase::SERVICE_UNBIND,
        Phase::SERVICE_REQUESTS_DONE,
        Phase::SERVICE_STOP,
        Phase::ACTOR_SYSTEM_TERMINATE,
    ];
    let lenient = limited(30, false);
    for phase in &phases {
        lenient.add_task(phase, "task", async |_| ()).unwrap();
    }
    let check = lenient.check_budget();
    assert!(!check.fits());
    assert_eq!(
        (check.needed(), check.allowed),
        (Duration::from_secs(28), Some(Duration::from_secs(27)))
    );

    let strict = limited(30, true);
    for phase in &phases[..3] {
        strict.add_task(phase, "task", async |_| ()).unwrap();
    }
    let error = strict.add_task(&phases[3], "task", async |_| ()).unwrap_err();
    assert!(matches!(error, AddTaskError::OverBudget { .. }));
    let said = error.to_string();
    assert!(said.contains("= 28s exceeds the 27s allowed") && said.contains("wait 32s"), "{said}");
    assert_eq!(strict.tasks().len(), 3, "the refused task is not there");

    let short = limited(2, true);
    assert!(matches!(short.install_signals(), Ok(()) | Err(SignalError::OverBudget { .. })));
    short.remove_signals().unwrap();
}

#[tokio::test(start_paused = true)]
async fn s42_the_deadline_is_seen_by_every_task_and_can_only_be_shortened() {
    let shutdown = limited(30, false);
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(20)).unwrap();
    shutdown
        .add_task(Phase::SERVICE_STOP, "watch", {
            let shutdown = shutdown.clone();
            async move |cx: TaskCx| {
                assert_eq!(cx.remaining(), Duration::from_secs(20));
                assert_eq!(cx.shutdown_deadline().remaining(), Duration::from_secs(27));
                shutdown.shorten(Duration::from_secs(60));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(cx.shutdown_deadline().remaining(), Duration::from_secs(26));
                shutdown.shorten(Duration::from_secs(10));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(cx.shutdown_deadline().remaining(), Duration::from_secs(9));
                // The reserve of 3 s and two graces of 200 ms are not this task's to spend.
                assert_eq!(cx.remaining(), Duration::from_millis(5_600));
                cx.cancelled().await;
                assert_eq!(cx.remaining(), Duration::ZERO);
            }
        })
        .unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let watch = report.phase(Phase::SERVICE_STOP).unwrap().task("watch").unwrap().clone();
    assert_eq!(watch.outcome.to_string(), "timed out after 7.6s");
    assert_eq!(report.allowed, Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn s43_when_time_runs_short_early_phases_give_way_and_closing_ones_run() {
    // 10 s less its margin is 8 s, of which 2 s are the reserve: early phases let go at 6 s,
    // closing ones at 6.5 s, actors at 7 s, and what comes after them at 7.5 s.
    check(
        "kill-after 10s; service-unbind 4s; service-stop hangs timeout 30s; cluster-leave 1s; \
         before-actor-system-terminate hangs timeout 30s; after 1s after before-actor-system-terminate; \
         actor-system-terminate hangs timeout 30s; close-resources hangs timeout 30s; \
         then 1s after close-resources",
        expect![[r#"
            0s service-unbind started
            4s service-unbind over
            4s service-stop started
            5s 868ms service-stop dropped
            5s 868ms before-actor-system-terminate started
            6s 368ms before-actor-system-terminate dropped
            6s 368ms actor-system-terminate started
            6s 868ms actor-system-terminate dropped
            6s 868ms close-resources started
            7s 368ms close-resources dropped
            7s 368ms shutdown over: unclean; service-stop timed out after 1.7s; cluster-leave skipped: out of time; before-actor-system-terminate timed out after 365ms; after skipped: out of time; actor-system-terminate timed out after 365ms; close-resources timed out after 365ms; then skipped: out of time
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s43_shortening_keeps_the_reserve() {
    check(
        "@1s shorten 4s; service-stop hangs timeout 30s; cluster-leave 1s; \
         before-actor-system-terminate 500ms; actor-system-terminate 500ms",
        expect![[r#"
            0s service-stop started
            1s shortened to 4s
            1s 800ms service-stop dropped
            1s 800ms before-actor-system-terminate started
            2s 300ms before-actor-system-terminate over
            2s 300ms actor-system-terminate started
            2s 800ms actor-system-terminate over
            2s 800ms shutdown over: unclean; service-stop timed out after 1.6s; cluster-leave skipped: out of time
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s43_a_deadline_that_is_shortened_before_the_run_holds_for_it() {
    for seconds in [20, 7] {
        let shutdown = Shutdown::new();
        shutdown.shorten(Duration::from_secs(seconds));
        shutdown.shorten(Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert_eq!(report.allowed, Duration::from_secs(seconds), "it counts from the beginning");
    }
}

#[tokio::test(start_paused = true)]
async fn s43_however_little_time_is_left_the_closing_phases_get_some_of_it() {
    for millis in [100, 1_000, 1_800, 4_000] {
        let shutdown = Shutdown::new();
        for phase in [Phase::SERVICE_STOP, Phase::CLUSTER_LEAVE] {
            shutdown.add_task(phase, "stuck", adieu_testkit::faults::hang).unwrap();
        }
        for phase in [Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, Phase::ACTOR_SYSTEM_TERMINATE] {
            shutdown.add_task(phase, "flush", async |_| ()).unwrap();
        }
        let completed = shutdown.run(Reason::Unknown);
        shutdown.shorten(Duration::from_millis(millis));
        let report = completed.await.unwrap();
        for phase in [Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, Phase::ACTOR_SYSTEM_TERMINATE] {
            let flush = report.phase(&phase).unwrap().task("flush").unwrap();
            assert_eq!(flush.outcome.to_string(), "finished", "{millis}: {report}");
        }
        assert!(report.took <= Duration::from_millis(millis), "{report}");
    }
}

#[tokio::test]
async fn s41_in_strict_mode_no_change_of_the_plan_may_exceed_it() {
    let strict = limited(30, true);
    strict.add_task(Phase::SERVICE_STOP, "task", async |_| ()).unwrap();
    let hour = Duration::from_secs(3_600);
    let error = strict.set_phase_timeout(Phase::SERVICE_STOP, hour).unwrap_err();
    assert!(error.to_string().contains("exceeds the 27s allowed"), "{error}");
    assert_eq!(strict.plan().phase(Phase::SERVICE_STOP).unwrap().timeout().as_secs(), 5);
    assert!(strict.check_budget().fits());
}

#[tokio::test(start_paused = true)]
async fn s41_what_is_configured_binds_any_shutdown() {
    let shutdown = limited(30, false);
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(100)).unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "hang", adieu_testkit::faults::hang).unwrap();
    let completed = shutdown.run(Reason::Unknown);
    assert_eq!(shutdown.deadline().unwrap().remaining(), Duration::from_secs(27));
    assert!(completed.await.unwrap().took <= Duration::from_secs(27));
}
