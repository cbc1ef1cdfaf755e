//! Promises about the deadline, the budget and the reserve.

use std::time::Duration;

use adieu_core::{
    AddTaskError, Config, Format, KillAfter, Phase, Reason, Shutdown, SignalError, TaskCx, TaskSpec,
};
use expect_test::expect;

use crate::check;

fn limited(kill_after: u64, strict: bool) -> Shutdown {
    let kill_after = KillAfter::After(Duration::from_secs(kill_after));
    Shutdown::configured(Config::for_tests().kill_after(kill_after).strict(strict)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn s41_a_phase_counts_no_longer_than_the_timeouts_of_its_tasks() {
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
    assert_eq!(worst(), seconds(5), "not longer than the phase");
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
async fn s41_the_worst_case_is_compared_with_the_allowed_time() {
    // The budget is 30 s minus the margin: 27 s. Three phases of 5 s, the last of 10 s and the
    // reserve of 3 s are 28 s.
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
    let text = error.to_string();
    assert!(text.contains("= 28s exceeds the 27s allowed") && text.contains("wait 32s"), "{text}");
    assert_eq!(strict.tasks().len(), 3, "the rejected task was not added");

    let short = limited(2, true);
    assert!(matches!(short.install_signals(), Ok(()) | Err(SignalError::OverBudget { .. })));
    short.remove_signals().unwrap();
}

#[tokio::test(start_paused = true)]
async fn s42_every_task_sees_the_deadline_which_can_only_be_shortened() {
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
                // This task may not spend the reserve of 3 s and two graces of 200 ms.
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
async fn s43_if_there_is_little_time_early_phases_are_cut_and_closing_phases_run() {
    // The budget is 10 s minus the margin: 8 s, with a reserve of 2 s. Early phases end at 6 s,
    // closing phases at 6.5 s, actors at 7 s, and the phases after them at 7.5 s.
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
async fn s564_a_shortened_deadline_keeps_the_reserve() {
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
async fn s42_a_deadline_shortened_before_the_run_limits_the_run() {
    for seconds in [20, 7] {
        let shutdown = Shutdown::new();
        shutdown.shorten(Duration::from_secs(seconds));
        shutdown.shorten(Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert_eq!(report.allowed, Duration::from_secs(seconds), "counted from the beginning");
    }
}

#[tokio::test(start_paused = true)]
async fn s564_the_closing_phases_get_time_however_little_is_left() {
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
async fn s561_in_strict_mode_a_change_that_exceeds_the_budget_is_an_error() {
    let strict = limited(30, true);
    strict.add_task(Phase::SERVICE_STOP, "task", async |_| ()).unwrap();
    let hour = Duration::from_secs(3_600);
    let error = strict.set_phase_timeout(Phase::SERVICE_STOP, hour).unwrap_err();
    assert!(error.to_string().contains("exceeds the 27s allowed"), "{error}");
    assert_eq!(strict.plan().phase(Phase::SERVICE_STOP).unwrap().timeout().as_secs(), 5);
    assert!(strict.check_budget().fits());
}

#[tokio::test(start_paused = true)]
async fn s562_a_configured_time_limits_every_shutdown() {
    let shutdown = limited(30, false);
    shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(100)).unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "hang", adieu_testkit::faults::hang).unwrap();
    let completed = shutdown.run(Reason::Unknown);
    assert_eq!(shutdown.deadline().unwrap().remaining(), Duration::from_secs(27));
    assert!(completed.await.unwrap().took <= Duration::from_secs(27));
}

// === the drain window ===

/// Runs a shutdown with a request that takes this long. Returns the outcome of the drain and the
/// duration of the shutdown.
async fn drains(shutdown: &Shutdown, takes: Duration) -> (String, Duration) {
    let gate = shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    let request = async {
        tokio::select! {
            () = tokio::time::sleep(takes) => {}
            () = pass.cancelled() => {}
        }
        drop(pass);
    };
    let (report, ()) = tokio::join!(shutdown.run(Reason::Unknown), request);
    let report = report.unwrap();
    let phase = report.phase(Phase::SERVICE_REQUESTS_DONE).unwrap();
    (phase.task("drain http").unwrap().outcome.to_string(), report.took)
}

#[tokio::test(start_paused = true)]
async fn s202_the_drain_window_uses_the_time_that_the_deadline_leaves() {
    // The budget is 30 s minus the margin: 27 s. The reserve takes 3 s, service-stop 2 s and
    // close-resources 5 s. Two graces of 200 ms are kept for each of the two and for the drain.
    let window = Duration::from_millis(27_000 - 3_000 - 2_000 - 5_000 - 3 * 400);
    let with_pool = || {
        let shutdown = limited(30, false);
        let close = adieu_testkit::faults::hang;
        shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
        shutdown
    };
    let second = Duration::from_secs(1);
    assert_eq!(drains(&with_pool(), window - second).await.0, "finished");
    let (outcome, took) = drains(&with_pool(), window + second).await;
    assert_eq!(outcome, "timed out after 15.8s");
    assert!(took <= Duration::from_secs(24), "no time for the reserve: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn s202_the_drain_window_has_a_minimum() {
    // The budget is 12 s minus 2 s, with a reserve of 2.5 s. close-resources alone would need the
    // rest.
    let shutdown = limited(12, false);
    shutdown.set_phase_timeout(Phase::CLOSE_RESOURCES, Duration::from_secs(8)).unwrap();
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", async |_| ()).unwrap();
    let hour = Duration::from_secs(3_600);
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 5s");
}

#[tokio::test(start_paused = true)]
async fn s203_a_configured_drain_timeout_is_used() {
    let hour = Duration::from_secs(3_600);
    let parse = |text: &str| Config::parse(text, Format::Toml).unwrap();
    let texts = ["drain-timeout = '7s'", "phases.service-requests-done.timeout = '7s'"];
    for config in texts.map(parse).into_iter().chain([
        Config::new().drain_timeout(Duration::from_secs(7)),
        Config::new().phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(7)),
    ]) {
        let kill_after = KillAfter::After(Duration::from_secs(60));
        let shutdown = Shutdown::configured(config.kill_after(kill_after)).unwrap();
        assert_eq!(drains(&shutdown, hour).await.0, "timed out after 7s");
    }
    let shutdown = limited(60, false);
    shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(7)).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 7s");

    let at_once = Shutdown::configured(parse("drain-timeout = '0s'")).unwrap();
    assert_eq!(drains(&at_once, hour).await.0, "timed out after 1ms");
    let auto = parse("drain-timeout = 'auto'").plan().unwrap();
    assert!(auto.phase(Phase::SERVICE_REQUESTS_DONE).unwrap().is_open_ended());
}

#[test]
fn s203_the_two_keys_of_the_drain_timeout_are_equivalent() {
    let both = "drain-timeout = '7s'\nphases.service-requests-done.timeout = '8s'";
    assert_eq!(
        Config::parse(both, Format::Toml).unwrap_err().to_string(),
        "drain-timeout: means the same as phases.service-requests-done.timeout: write one of them",
    );
    let error = Config::parse("drain-timout = '7s'", Format::Toml).unwrap_err();
    assert_eq!(error.to_string(), "unknown key drain-timout; did you mean drain-timeout?");
    // A variable overrides the file, whichever of the two names each of them uses.
    let (short, long) = (
        "drain-timeout = '7s'",
        "phases.service-requests-done = { timeout = '7s', recover = true }",
    );
    for (text, var) in [
        (long, "ADIEU__DRAIN_TIMEOUT"),
        (short, "ADIEU__PHASES__SERVICE_REQUESTS_DONE__TIMEOUT"),
        (short, "ADIEU__DRAIN_TIMEOUT"),
    ] {
        let vars = [(var.to_owned(), "9s".to_owned())];
        let config = Config::parse_with_vars(text, Format::Toml, vars).unwrap();
        let plan = config.plan().unwrap();
        let drain = plan.phase(Phase::SERVICE_REQUESTS_DONE).unwrap();
        assert_eq!(drain.timeout(), Duration::from_secs(9), "{text} {var}");
    }
}

#[tokio::test(start_paused = true)]
async fn s204_without_a_deadline_the_drain_window_is_ten_seconds() {
    let hour = Duration::from_secs(3_600);
    for config in [Config::new(), Config::new().kill_after(KillAfter::Never)] {
        let shutdown = Shutdown::configured(config).unwrap();
        assert_eq!(drains(&shutdown, hour).await.0, "timed out after 10s");
        let check = shutdown.check_budget();
        assert_eq!(check.drain, None, "nothing drains");
    }
    let shutdown = Shutdown::new();
    shutdown.add_gate("http").unwrap();
    let check = shutdown.check_budget();
    assert_eq!(check.drain, Some(Duration::from_secs(10)));
    assert_eq!(check.critical_path.worst_case, Duration::from_secs(5 + 2 + 10 + 2));
    // A longer `default-phase-timeout` also extends the drain window.
    let config = Config::new().default_phase_timeout(Duration::from_secs(20));
    let shutdown = Shutdown::configured(config).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 20s");
}

#[tokio::test(start_paused = true)]
async fn s205_the_window_shrinks_when_later_phases_need_more_time() {
    let hour = Duration::from_secs(3_600);
    // A task that is added to a later phase while work drains: 5 s, and two graces.
    let shutdown = limited(30, false);
    let later = {
        let shutdown = shutdown.clone();
        async move |_| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", async |_| ()).unwrap();
        }
    };
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "later", later).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 15.8s");
    // A longer timeout of a later phase.
    let shutdown = limited(30, false);
    let later = {
        let shutdown = shutdown.clone();
        async move |_| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            shutdown.set_phase_timeout(Phase::CLOSE_RESOURCES, Duration::from_secs(9)).unwrap();
        }
    };
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "later", later).unwrap();
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", async |_| ()).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 11.8s");
    // A deadline that is shortened to 20 s.
    let shutdown = limited(30, false);
    let later = {
        let shutdown = shutdown.clone();
        async move |_| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            shutdown.shorten(Duration::from_secs(17));
        }
    };
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "later", later).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 14.2s");
}
