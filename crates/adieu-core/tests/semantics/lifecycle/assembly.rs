//! The sets of steps that are rejected, and the demands of each profile.

use std::time::Duration;

use adieu_core::{
    AssembleError, Config, DeploymentProfile, Format, Lifecycle, LifecycleBuilder, LoopCx, Phase,
    Shutdown, Signal, StartCx, Step,
};
use expect_test::{Expect, expect};

use super::{build, shutdown};
use crate::logging::CapturedLog;

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
    expect!["in a fleet, steps that change shared state must be guarded, so that one replica at a time runs them; unguarded steps: indexes, seed; guard each with Fleet::singleton, or with a lock of your own and Step::singleton_guarded"]
        .assert_eq(&error.to_string());
    assert!(Lifecycle::builder().steps(steps()).build().is_ok());

    let lifecycle = fleet().steps(steps().into_iter().skip(2)).build().unwrap();
    let warning = "step cache: a rate limit in memory is local to this process, but the profile is \
                   a fleet: use a shared one";
    assert_eq!(lifecycle.warnings().collect::<Vec<_>>(), [warning]);
    let (log, _guard) = CapturedLog::listen();
    lifecycle.start(&shutdown()).await.unwrap();
    log.wait_for(|text| {
        text.contains(&format!("WARN state not shared by the fleet warning=\"{warning}\""))
    });
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
        "a serverless process does not live on between requests, but these steps need that: consumer, relay; remove them, or choose another profile"
    );
    assert!(Lifecycle::builder().step(long("relay")).build().is_ok());

    // The lame duck and the drain take no time unless a time is set.
    for (text, expected_ms) in [
        ("", 200),
        ("lame-duck = '3s'\nlame-duck-min = '3s'", 3_200),
        ("phases.service-requests-done.timeout = '2s'", 2_200),
    ] {
        let shutdown = Shutdown::configured(Config::parse(text, Format::Toml).unwrap()).unwrap();
        let gate = shutdown.add_gate("http").unwrap();
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
    let warning = "WARN loop needs a process that lives on name=\"orders\"";
    log.wait_for(|text| text.contains(warning));
}
