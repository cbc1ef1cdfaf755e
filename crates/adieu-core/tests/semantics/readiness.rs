//! Promises about readiness, cordons and the lame duck.

use std::time::Duration;

use adieu_core::{CheckState, Config, KillAfter, Phase, Readiness, Reason, Shutdown, Signal};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

#[tokio::test(start_paused = true)]
async fn s66_the_process_is_ready_when_start_up_has_ended_and_every_promise_is_kept() {
    let shutdown = Shutdown::new();
    let (pool, cache) = (shutdown.add_promise("pool"), shutdown.add_promise("cache"));
    assert_eq!(shutdown.readiness(), Readiness::Starting);
    shutdown.mark_started();
    pool.keep();
    assert_eq!(shutdown.readiness(), Readiness::Starting, "the promise of the cache is pending");
    cache.keep();
    assert!(shutdown.readiness().is_ready());
    let late = shutdown.add_promise("late");
    assert_eq!(shutdown.readiness(), Readiness::Starting);
    drop(late);
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    let checks: Vec<_> =
        shutdown.checks().into_iter().map(|check| (check.name.to_string(), check.state)).collect();
    let state = |name: &str, state| (name.to_owned(), state);
    assert_eq!(
        checks,
        [
            state("pool", CheckState::Ready),
            state("cache", CheckState::Ready),
            state("late", CheckState::Failed),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn s66_a_panic_in_start_up_never_makes_the_process_ready() {
    let shutdown = Shutdown::new();
    let promise = shutdown.add_promise("pool");
    let starting = tokio::task::JoinSet::from_iter([async move {
        let _promise = promise;
        if true {
            panic!("no database");
        }
    }]);
    shutdown.mark_started();
    assert!(starting.join_all_or_panics().await);
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
}

trait JoinAllOrPanics {
    async fn join_all_or_panics(self) -> bool;
}

impl JoinAllOrPanics for tokio::task::JoinSet<()> {
    async fn join_all_or_panics(mut self) -> bool {
        self.join_next().await.is_some_and(|joined| joined.is_err())
    }
}

#[tokio::test(start_paused = true)]
async fn s66_the_process_is_not_ready_from_the_beginning_of_the_shutdown() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.mark_started();
    for phase in [Phase::BEFORE_SERVICE_UNBIND, Phase::SERVICE_REQUESTS_DONE, Phase::SERVICE_STOP] {
        shutdown
            .add_task(&phase, "wait", async |_| tokio::time::sleep(Duration::from_secs(1)).await)
            .unwrap();
    }
    let watch = async |wanted: Readiness| {
        let reached = shutdown.until_readiness(|readiness| readiness == wanted).await;
        timeline.note(reached.to_string());
    };
    watch(Readiness::Ready).await;
    let completed = shutdown.run(Reason::Unknown);
    assert_eq!(shutdown.readiness(), Readiness::Draining, "at once");
    tokio::join!(watch(Readiness::Draining), watch(Readiness::Stopping));
    completed.await.unwrap();
    assert_eq!(shutdown.readiness(), Readiness::Stopping);
    expect![[r"
        0s ready
        0s draining
        2s stopping
    "]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s67_a_cordon_makes_unready_and_refuses_until_it_is_removed() {
    let shutdown = Shutdown::new();
    let gate = shutdown.add_gate("http").unwrap();
    shutdown.mark_started();
    shutdown.cordon();
    assert_eq!(shutdown.readiness(), Readiness::Cordoned);
    assert!(gate.enter().is_err());
    assert!(shutdown.uncordon());
    assert!(shutdown.readiness().is_ready() && gate.enter().is_ok());
    shutdown.cordon();
    shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!shutdown.uncordon());
    assert_eq!(shutdown.readiness(), Readiness::Stopping);
    assert!(gate.enter().is_err());
}

#[tokio::test(start_paused = true)]
async fn s77_a_check_can_fail_and_recover() {
    let shutdown = Shutdown::new();
    let (database, disk) = (shutdown.add_check("database"), shutdown.add_check("disk"));
    shutdown.mark_started();
    database.mark_ready();
    assert_eq!(shutdown.readiness(), Readiness::Starting, "the check of the disk is pending");
    disk.mark_ready();
    assert!(shutdown.readiness().is_ready());
    database.mark_failed("connection refused");
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    let shown = serde_json::to_string(&shutdown.checks()).unwrap();
    expect![[
        r#"[{"name":"database","state":"failed","detail":"connection refused"},{"name":"disk","state":"ready"}]"#
    ]]
    .assert_eq(&shown);
    // A waiter is woken.
    let recovers = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        database.mark_ready();
    };
    let (readiness, ()) = tokio::join!(shutdown.until_readiness(Readiness::is_ready), recovers);
    assert!(readiness.is_ready() && shutdown.checks()[0].detail.is_none());
    drop(disk);
    assert_eq!(shutdown.readiness(), Readiness::Unavailable, "its handle was dropped");
    database.mark_ready();
    assert_eq!(shutdown.readiness(), Readiness::Unavailable, "one failed check is enough");
    shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(shutdown.readiness(), Readiness::Stopping);
}

/// Enters the gate every half second until the given time. Returns the timeline of the shutdown.
async fn with_visitors(config: Config, until: Duration) -> String {
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    shutdown.mark_started();
    let timeline = Timeline::new();
    let completed = shutdown.run(Reason::ProcessTerminate(Signal::TERM));
    let visits = async {
        let mut served = 0;
        let began = tokio::time::Instant::now();
        while began.elapsed() < until && gate.enter().is_ok() {
            served += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        timeline.note(format!("{served} served"));
    };
    let flip = async {
        shutdown.until_readiness(|readiness| !readiness.is_ready()).await;
        timeline.note("not ready");
    };
    let (report, (), ()) = tokio::join!(completed, visits, flip);
    timeline.note(format!("over: {}", report.unwrap().outcome));
    timeline.to_string()
}

#[tokio::test(start_paused = true)]
async fn s68_the_lame_duck_ends_when_requests_stop_or_its_time_has_elapsed() {
    let seconds = Duration::from_secs;
    let config = || Config::for_tests().lame_duck(seconds(6));
    // No request at all: over after a second.
    expect![[r#"
        0s 0 served
        0s not ready
        1s over: clean
    "#]]
    .assert_eq(&with_visitors(config(), seconds(0)).await);
    // Requests for two seconds.
    expect![[r#"
        0s not ready
        2s 4 served
        2s 500ms over: clean
    "#]]
    .assert_eq(&with_visitors(config(), seconds(2)).await);
    // Requests without end.
    expect![[r#"
        0s not ready
        6s 500ms 13 served
        6s 500ms over: clean
    "#]]
    .assert_eq(&with_visitors(config(), seconds(60)).await);
    // At least three seconds, even without requests.
    expect![[r#"
        0s 0 served
        0s not ready
        3s over: clean
    "#]]
    .assert_eq(&with_visitors(config().lame_duck_min(seconds(3)), seconds(0)).await);
}

#[tokio::test(start_paused = true)]
async fn s1403_a_service_of_one_replica_stays_ready_for_a_while_but_not_after_its_gates_have_closed()
 {
    let seconds = Duration::from_secs;
    let config = || Config::for_tests().lame_duck(seconds(6));
    expect![[r#"
        4s not ready
        6s 500ms 13 served
        6s 500ms over: clean
    "#]]
    .assert_eq(&with_visitors(config().unready_after(seconds(4)), seconds(60)).await);
    expect![[r#"
        6s not ready
        6s 500ms 13 served
        6s 500ms over: clean
    "#]]
    .assert_eq(&with_visitors(config().unready_after(seconds(60)), seconds(60)).await);
}

#[tokio::test(start_paused = true)]
async fn s1402_a_service_with_few_requests_serves_until_routers_have_reacted() {
    let config = Config::new().kill_after(KillAfter::Never).lame_duck(Duration::from_secs(5));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    shutdown.mark_started();
    let began = tokio::time::Instant::now();
    let completed = shutdown.run(Reason::ProcessTerminate(Signal::TERM));
    // Routers take three and a half seconds to react.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1_150)).await;
        assert!(gate.enter().is_ok(), "refused after {:?}", began.elapsed());
    }
    let report = completed.await.unwrap();
    let took = report.phase(Phase::BEFORE_SERVICE_UNBIND).and_then(|phase| phase.took).unwrap();
    assert!((4_450..4_600).contains(&took.as_millis()), "a second after the last one: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn s68_a_second_sigterm_ends_the_lame_duck() {
    let config = Config::for_tests().lame_duck(Duration::from_secs(60));
    let config = config.lame_duck_min(Duration::from_secs(60));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let inside = gate.enter().unwrap();
    let _ = shutdown.receive(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(gate.enter().is_ok(), "still serving");
    let _ = shutdown.receive(Signal::TERM);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(gate.enter().is_err(), "the gate is closed");
    drop(inside);
    let report = shutdown.completed().await.unwrap();
    assert!(report.is_clean() && report.took < Duration::from_secs(4), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1401_requests_in_flight_do_not_extend_the_lame_duck() {
    let config = Config::for_tests().lame_duck(Duration::from_secs(60));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let inside = gate.enter().unwrap();
    drop(shutdown.run(Reason::Unknown));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(gate.is_closed(), "no request has arrived for a second");
    drop(inside);
    assert!(shutdown.completed().await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn s77_a_new_check_replaces_an_abandoned_one_of_the_same_name() {
    let shutdown = Shutdown::new();
    shutdown.mark_started();
    let first = shutdown.add_check("kafka");
    first.mark_ready();
    drop(first);
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    let second = shutdown.add_check("kafka");
    assert_eq!(shutdown.readiness(), Readiness::Starting);
    second.mark_ready();
    assert!(shutdown.readiness().is_ready());
    assert_eq!(shutdown.checks().len(), 1);
    // A check whose handle exists is not replaced.
    let third = shutdown.add_check("kafka");
    third.mark_ready();
    second.mark_failed("down");
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
}

#[test]
fn s67_readiness_and_gates_agree_after_racing_cordons() {
    let shutdown = Shutdown::new();
    let gate = shutdown.add_gate("http").unwrap();
    shutdown.mark_started();
    for _ in 0..2_000 {
        std::thread::scope(|scope| {
            scope.spawn(|| shutdown.cordon());
            scope.spawn(|| assert!(shutdown.uncordon()));
        });
        assert_eq!(shutdown.readiness() == Readiness::Cordoned, gate.is_cordoned());
    }
}
