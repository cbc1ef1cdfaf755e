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

// === the drain window ===

/// Runs a shutdown with a request that takes this long, and says how its drain ended and after what
/// time the shutdown was over.
async fn drains(shutdown: &Shutdown, takes: Duration) -> (String, Duration) {
    let gate = shutdown.gate("http").unwrap();
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
async fn s202_the_drain_window_uses_what_the_deadline_leaves() {
    // 30 s less its margin are 27 s. The reserve takes 3 s, service-stop 2 s, close-resources 5 s,
    // and two graces of 200 ms each are kept for these two and for the drain itself.
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
    assert!(took <= Duration::from_secs(24), "the reserve is left: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn s202_the_drain_has_its_least_where_there_is_less_time() {
    // 12 s less 2 s, of which 2.5 s are the reserve: close-resources would need all that is left.
    let shutdown = limited(12, false);
    shutdown.set_phase_timeout(Phase::CLOSE_RESOURCES, Duration::from_secs(8)).unwrap();
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", async |_| ()).unwrap();
    let hour = Duration::from_secs(3_600);
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 5s");
}

#[tokio::test(start_paused = true)]
async fn s203_a_drain_timeout_that_is_set_holds() {
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
fn s203_the_two_keys_of_the_drain_timeout_mean_the_same() {
    let both = "drain-timeout = '7s'\nphases.service-requests-done.timeout = '8s'";
    assert_eq!(
        Config::parse(both, Format::Toml).unwrap_err().to_string(),
        "drain-timeout: means the same as phases.service-requests-done.timeout: write one of them",
    );
    let error = Config::parse("drain-timout = '7s'", Format::Toml).unwrap_err();
    assert_eq!(error.to_string(), "unknown key drain-timout; did you mean drain-timeout?");
    // A variable holds against the file, whichever of the two names either uses.
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
async fn s204_without_a_deadline_the_drain_has_ten_seconds() {
    let hour = Duration::from_secs(3_600);
    for config in [Config::new(), Config::new().kill_after(KillAfter::Never)] {
        let shutdown = Shutdown::configured(config).unwrap();
        assert_eq!(drains(&shutdown, hour).await.0, "timed out after 10s");
        let check = shutdown.check_budget();
        assert_eq!(check.drain, None, "nothing is left to drain");
    }
    let shutdown = Shutdown::new();
    shutdown.gate("http").unwrap();
    let check = shutdown.check_budget();
    assert_eq!(check.drain, Some(Duration::from_secs(10)));
    assert_eq!(check.critical_path.worst_case, Duration::from_secs(5 + 2 + 10 + 2));
    // Longer phases are meant to be longer.
    let config = Config::new().default_phase_timeout(Duration::from_secs(20));
    let shutdown = Shutdown::configured(config).unwrap();
    assert_eq!(drains(&shutdown, hour).await.0, "timed out after 20s");
}

#[tokio::test(start_paused = true)]
async fn s205_the_window_shrinks_with_what_comes_to_need_time() {
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
