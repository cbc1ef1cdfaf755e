//! Promises about how a shutdown begins, runs and is awaited.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{
    AwaitError, Completion, Config, CustomReason, ExitCode, Phase, PlanError, Reason, Report,
    Shutdown, Signal, Stage,
};
use adieu_testkit::{faults, timeline::Timeline};
use expect_test::expect;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s36_a_shutdown_runs_once_and_all_callers_get_the_same_report() {
    let shutdown = Shutdown::new();
    let ran = Arc::new(Mutex::new(0));
    shutdown
        .add_task(Phase::SERVICE_STOP, "count", {
            let ran = Arc::clone(&ran);
            async move |_| *ran.lock().unwrap() += 1
        })
        .unwrap();
    let before = shutdown.completed();
    let callers: Vec<_> = (0..8)
        .map(|n| {
            let shutdown = shutdown.clone();
            std::thread::spawn(move || {
                let reason = if n % 2 == 0 { Reason::ClusterLeaving } else { Reason::Unknown };
                shutdown.run(reason).wait().unwrap()
            })
        })
        .collect();
    let report = before.await.unwrap();
    for caller in callers {
        assert!(Arc::ptr_eq(&report, &caller.join().unwrap()));
    }
    assert!(Arc::ptr_eq(&report, &shutdown.run(Reason::ClusterDowning).await.unwrap()));
    assert_eq!(*ran.lock().unwrap(), 1);
    assert_eq!(shutdown.reason().unwrap().to_string(), report.reason, "the first reason wins");
    assert_ne!(report.reason, "cluster-downing");
}

#[tokio::test(start_paused = true)]
async fn s37_dropping_the_future_changes_nothing() {
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_STOP, "slow", async |_| {
            tokio::time::sleep(Duration::from_secs(3)).await;
        })
        .unwrap();
    drop(shutdown.run(Reason::Unknown));
    let impatient = tokio::time::timeout(Duration::from_secs(1), shutdown.completed()).await;
    assert!(impatient.is_err());
    assert!(shutdown.completed().await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn s38_awaiting_the_shutdown_inside_its_own_task_is_an_error_at_once() {
    let shutdown = Shutdown::new();
    let other = Shutdown::new();
    let timeline = Timeline::new();
    let inside = |shutdown: &Shutdown, other: &Shutdown, timeline: &Timeline| {
        let (shutdown, other, timeline) = (shutdown.clone(), other.clone(), timeline.clone());
        async move |_: adieu_core::TaskCx| {
            let waited = |completion: Completion| async { completion.await.map(|_| "a report") };
            timeline.note(format!("own: {:?}", waited(shutdown.run(Reason::Unknown)).await));
            timeline.note(format!("other: {:?}", waited(other.run(Reason::Unknown)).await));
        }
    };
    shutdown.add_task(Phase::SERVICE_STOP, "inside", inside(&shutdown, &other, &timeline)).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        0s own: Err(InsideTask)
        0s other: Ok("a report")
    "#]]
    .assert_eq(&timeline.to_string());
}

#[test]
fn s38_awaiting_the_shutdown_inside_a_blocking_task_is_an_error_at_once() {
    let shutdown = Shutdown::new();
    shutdown
        .add_blocking_task(Phase::CLUSTER_LEAVE, "blocking inside", {
            let shutdown = shutdown.clone();
            move |_| assert_eq!(shutdown.completed().wait().unwrap_err(), AwaitError::InsideTask)
        })
        .unwrap();
    let report = shutdown.run(Reason::Unknown).wait().unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s39_a_shutdown_can_begin_at_a_phase_and_an_unknown_one_is_an_error() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.add_phase(adieu_core::PhaseSpec::new("independent")).unwrap();
    for phase in ["service-unbind", "cluster-leave", "actor-system-terminate", "independent"] {
        let timeline = timeline.clone();
        shutdown
            .add_task(phase, phase, async move |_| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                timeline.note(phase);
            })
            .unwrap();
    }
    assert!(matches!(
        shutdown.run_from("nope", Reason::Unknown),
        Err(PlanError::UnknownPhase { .. })
    ));
    assert_eq!(shutdown.stage(), Stage::Up);
    let report = shutdown.run_from("cluster-leave", Reason::Unknown).unwrap().await.unwrap();
    assert!(report.is_clean());
    let skipped = &report.phase("service-unbind").unwrap().task("service-unbind").unwrap().outcome;
    assert_eq!(skipped.to_string(), "skipped: the shutdown began at a later phase");
    expect![[r"
        1s independent
        1s cluster-leave
        2s actor-system-terminate
    "]]
    .assert_eq(&timeline.to_string());
}

#[derive(Debug, PartialEq)]
struct AdminEndpoint {
    user: &'static str,
}

impl CustomReason for AdminEndpoint {
    fn name(&self) -> &str {
        "admin-endpoint"
    }
}

#[tokio::test(start_paused = true)]
async fn s40_a_custom_reason_carries_data_and_each_reason_may_have_an_exit_code() {
    let own = Reason::from(AdminEndpoint { user: "ops" });
    let config = Config::for_tests().exit_code(3).exit_code_for(&own, 42);
    let shutdown = Shutdown::configured(config).unwrap();
    assert_eq!(shutdown.policy(&Reason::Unknown).exit_code, 3);
    assert_eq!(shutdown.policy(&Reason::ClusterJoinUnsuccessful).exit_code, 255);
    shutdown
        .add_task(Phase::SERVICE_STOP, "look", async |cx: adieu_core::TaskCx| {
            assert_eq!(cx.reason().downcast_ref::<AdminEndpoint>().unwrap().user, "ops");
        })
        .unwrap();
    let report = shutdown.run(AdminEndpoint { user: "ops" }).await.unwrap();
    assert_eq!((report.reason.as_str(), report.exit_code), ("admin-endpoint", 42));
    assert!(report.is_clean());

    let names = [
        (Reason::ProcessTerminate(Signal::TERM), "SIGTERM"),
        (Reason::ProcessTerminate(Signal::new(40)), "signal-40"),
        (Reason::ProcessExit, "process-exit"),
        (Reason::ActorSystemTerminate, "actor-system-terminate"),
        (Reason::IncompatibleConfiguration, "incompatible-configuration"),
    ];
    for (reason, name) in names {
        assert_eq!((reason.name(), reason.to_string().as_str()), (name, name));
        assert!(reason.downcast_ref::<AdminEndpoint>().is_none());
    }
}

#[test]
fn s40_each_reason_may_have_a_policy() {
    let own = Reason::from(AdminEndpoint { user: "ops" });
    let config = Config::for_tests();
    let config = config.exit_process_for(&own, true).terminate_actor_system_for(&own, true);
    let shutdown = Shutdown::configured(config).unwrap();
    let (usual, changed) = (shutdown.policy(&Reason::Unknown), shutdown.policy(&own));
    assert_eq!((usual.exit_process, usual.terminate_actor_system), (false, false));
    assert_eq!((changed.exit_process, changed.terminate_actor_system), (true, true));
}

#[tokio::test(start_paused = true)]
async fn s52_clean_unclean_and_aborted_have_different_exit_codes() {
    for (fault, recover, code) in [
        (false, true, ExitCode::CLEAN),
        (true, true, ExitCode::UNCLEAN),
        (true, false, ExitCode::ABORTED),
    ] {
        let shutdown = Shutdown::new();
        shutdown.add_phase(adieu_core::PhaseSpec::new("x").recover(recover)).unwrap();
        if fault {
            shutdown.add_task("x", "x", faults::fail).unwrap();
        }
        assert_eq!(shutdown.run(Reason::Unknown).await.unwrap().exit_code, code);
    }
}

#[test]
fn s57_without_a_runtime_the_shutdown_creates_one() {
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_STOP, "sleep", async |_| {
            tokio::time::sleep(Duration::from_millis(1)).await;
        })
        .unwrap();
    assert!(shutdown.run(Reason::Unknown).wait().unwrap().is_clean());
}

#[test]
fn s57_if_the_runtime_is_dropped_waiters_get_an_error() {
    for flavour in ["current-thread", "multi-thread"] {
        let runtime = if flavour == "current-thread" {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
        } else {
            tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
        };
        let shutdown = runtime.block_on(async { Shutdown::new() });
        shutdown.add_task(Phase::SERVICE_STOP, "hang", faults::hang).unwrap();
        let completed = shutdown.run(Reason::Unknown);
        drop(runtime);
        match completed.wait() {
            Ok(report) => assert!(!report.is_clean()),
            Err(error) => assert_eq!(error, AwaitError::RuntimeGone),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s55_the_report_can_be_stored_as_json_and_read_again() {
    let (_, report) = adieu_testkit::scenario::play_to_report(
        "drain 2s; flaky fails after drain; stuck hangs timeout 1s after drain; off 1s disabled",
    )
    .await;
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["outcome"]["kind"], "unclean");
    assert_eq!(value["took_ms"], 3_200.0);
    let stuck =
        value["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == "stuck").unwrap();
    assert_eq!(stuck["timeout_ms"], 1_000.0);
    assert_eq!(
        stuck["tasks"][0]["outcome"],
        serde_json::json!({"kind": "timed-out", "after_ms": 1000.0})
    );
    assert_eq!((&stuck["started_ms"], &stuck["took_ms"]), (&2_000.0.into(), &1_200.0.into()));
    expect![[r#"
        shutdown unclean in 3.2s of 1m 53s: unknown, exit code 70
              0s  + drain           2s  finished
              0s      + drain       2s  finished
              2s  ! flaky           0s  failed: it was made to fail
              2s      ! flaky       0s  failed: it was made to fail
              2s  > stuck         1.2s  timed out after 1s
              2s      > stuck     1.2s  timed out after 1s
               -  - off              -  skipped: disabled
               -      - off          -  skipped: disabled"#]]
    .assert_eq(&report.to_string());
}

#[tokio::test(start_paused = true)]
async fn s56_for_tests_switches_off_automatic_shutdowns() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    assert!(!shutdown.policy(&Reason::Unknown).terminate_actor_system);
    assert!(!shutdown.runs_by_actor_system_terminate());
    assert!(!shutdown.runs_when_down());
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn s38_blocking_the_only_thread_of_the_runtime_is_an_error_at_once() {
    let shutdown = Shutdown::new();
    assert_eq!(shutdown.run(Reason::Unknown).wait().unwrap_err(), AwaitError::OnlyThread);
    assert!(shutdown.completed().await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn s560_a_token_fires_when_the_shutdown_begins() {
    let shutdown = Shutdown::new();
    let token = shutdown.token();
    shutdown.token().cancel();
    assert!(
        !token.is_cancelled() && shutdown.stage() == Stage::Up,
        "cancelling one begins nothing"
    );
    drop(shutdown.run(Reason::ClusterLeaving));
    assert!(token.is_cancelled());
    assert_eq!(shutdown.begun().await.name(), "cluster-leaving");
}

// The task owns a handle of its own shutdown.
#[tokio::test(start_paused = true)]
async fn s568_tasks_that_did_not_run_are_dropped_when_the_shutdown_is_over() {
    let held = Arc::new(());
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "skipped", {
            let (held, shutdown) = (Arc::clone(&held), shutdown.clone());
            async move |_| drop((held, shutdown))
        })
        .unwrap();
    shutdown.run_from(Phase::CLUSTER_LEAVE, Reason::Unknown).unwrap().await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn s483_the_status_names_tasks_that_have_failed() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, "good", async |_| ()).unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, "bad", async |_| Err::<(), _>("no luck")).unwrap();
    let brief = Duration::from_secs(1);
    shutdown
        .add_task(Phase::SERVICE_STOP, "long", async move |_| tokio::time::sleep(brief).await)
        .unwrap();
    assert!(shutdown.status().unclean.is_empty());
    let completion = shutdown.run(Reason::Unknown);
    tokio::time::sleep(brief / 2).await;
    let status = shutdown.status();
    assert_eq!(status.waiting_for[0].task.as_ref(), "long");
    let unclean: Vec<_> = status.unclean.iter().map(|task| (&*task.phase, &*task.task)).collect();
    assert_eq!(unclean, [("service-unbind", "bad")]);
    assert_eq!(status.unclean[0].outcome.to_string(), "failed: no luck");
    completion.await.unwrap();
}
