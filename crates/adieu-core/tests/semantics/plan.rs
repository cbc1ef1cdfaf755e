//! Promises about phases and the plan.

use std::time::Duration;

use adieu_core::{
    AddPhaseError, Config, Format, Order, Phase, PhaseSpec, Plan, PlanView, Reason, Shutdown,
};
use expect_test::expect;

use crate::check;

fn order(plan: &Plan) -> Vec<&str> {
    plan.order().map(|phase| phase.name().as_str()).collect()
}

fn refusal(spec: PhaseSpec) -> String {
    let mut plan = Plan::builder();
    plan.add(PhaseSpec::new("a").after(Phase::SERVICE_STOP)).unwrap();
    plan.add(PhaseSpec::new("b").after("a")).unwrap();
    let before = PlanView::from(&plan.build());
    let error = plan.add(spec).unwrap_err();
    assert_eq!(PlanView::from(&plan.build()), before, "a rejected change has changed the plan");
    error.to_string()
}

#[test]
fn s01_the_twelve_phases_are_built_in() {
    let plan = Plan::default();
    let described: Vec<String> = plan
        .order()
        .map(|phase| {
            assert!(phase.recovers() && phase.is_enabled());
            format!("{} {}s", phase.name(), phase.timeout().as_secs())
        })
        .collect();
    expect![[r"
        before-service-unbind 5s
        service-unbind 5s
        service-requests-done 5s
        service-stop 5s
        before-cluster-shutdown 5s
        cluster-sharding-shutdown-region 10s
        cluster-leave 5s
        cluster-exiting 10s
        cluster-exiting-done 5s
        cluster-shutdown 5s
        before-actor-system-terminate 5s
        actor-system-terminate 10s"]]
    .assert_eq(&described[..12].join("\n"));
    let names: Vec<&str> = Phase::BUILT_IN.iter().map(Phase::as_str).collect();
    assert_eq!(names, order(&plan));
}

#[tokio::test(start_paused = true)]
async fn s02_a_phase_can_be_added_with_all_its_properties() {
    check(
        "flush 2s timeout 1s after service-stop before cluster-leave; cluster-leave 1s; \
         off 1s disabled after service-stop",
        expect![[r"
            0s flush started
            1s 200ms flush dropped
            1s 200ms cluster-leave started
            2s 200ms cluster-leave over
            2s 200ms shutdown over: unclean; flush timed out after 1s; off skipped: disabled
        "]],
    )
    .await;
}

#[test]
fn s03_before_adds_a_dependency_to_an_existing_phase() {
    let mut plan = Plan::builder();
    plan.add(PhaseSpec::new("announce").before(Phase::SERVICE_UNBIND)).unwrap();
    let plan = plan.build();
    let unbind = plan.phase(Phase::SERVICE_UNBIND).unwrap();
    let depends_on: Vec<&Phase> = plan.depends_on(unbind).collect();
    assert_eq!(depends_on, [&Phase::BEFORE_SERVICE_UNBIND, &Phase::new("announce")]);
}

#[tokio::test(start_paused = true)]
async fn s04_a_timeout_can_be_changed_until_its_phase_has_started() {
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "late change", {
            let shutdown = shutdown.clone();
            async move |_| {
                shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(2)).unwrap();
                let error = shutdown
                    .set_phase_timeout(Phase::SERVICE_UNBIND, Duration::from_secs(9))
                    .unwrap_err();
                assert_eq!(error, AddPhaseError::TooLate { phase: Phase::SERVICE_UNBIND });
            }
        })
        .unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "hang", adieu_testkit::faults::hang).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(report.phase(Phase::SERVICE_UNBIND).unwrap().outcome.to_string(), "finished");
    assert_eq!(
        report.phase(Phase::SERVICE_STOP).unwrap().outcome.to_string(),
        "timed out after 2s"
    );
}

#[test]
fn s05_an_unknown_dependency_is_an_error_that_lists_the_known_phases() {
    let known = "known phases: before-service-unbind, service-unbind, service-requests-done, \
                 service-stop, before-cluster-shutdown, cluster-sharding-shutdown-region, \
                 cluster-leave, cluster-exiting, cluster-exiting-done, cluster-shutdown, \
                 before-actor-system-terminate, actor-system-terminate, close-resources, \
                 a, b";
    let expected = format!("phase x refers to unknown phase nope; {known}");
    assert_eq!(refusal(PhaseSpec::new("x").after("nope")), expected);
    assert_eq!(refusal(PhaseSpec::new("x").before("nope")), expected);
}

#[test]
fn s06_a_cycle_is_an_error_that_shows_its_path() {
    assert_eq!(
        refusal(PhaseSpec::new("x").after("b").before("a")),
        "phases wait for each other: a -> x -> b -> a",
    );
    assert_eq!(refusal(PhaseSpec::new("x").after("x")), "phases wait for each other: x -> x");
    let text = "phases.a.depends-on = ['b']\nphases.b.depends-on = ['a']";
    let error = Config::parse(text, Format::Toml).unwrap_err();
    assert_eq!(error.to_string(), "phases: phases wait for each other: a -> b -> a");
}

#[test]
fn s07_empty_and_duplicate_names_are_errors() {
    assert_eq!(refusal(PhaseSpec::new(" ")), "a phase has an empty name");
    assert_eq!(refusal(PhaseSpec::new("a")), "phase a already exists: choose another name");
    assert_eq!(
        refusal(PhaseSpec::new(Phase::SERVICE_STOP)),
        "phase service-stop already exists: choose another name",
    );
}

#[tokio::test(start_paused = true)]
async fn s08_a_phase_can_come_after_actor_system_terminate() {
    check(
        "actor-system-terminate 1s; x 1s after actor-system-terminate; y 1s after x; \
         z 3s before y",
        expect![[r"
            0s z started
            3s z over
            3s actor-system-terminate started
            4s actor-system-terminate over
            4s x started
            5s x over
            5s y started
            6s y over
            6s shutdown over: clean
        "]],
    )
    .await;
    let terminate = Phase::ACTOR_SYSTEM_TERMINATE;
    assert_eq!(
        refusal(PhaseSpec::new("x").after(&*terminate.to_string()).before(terminate)),
        "phases wait for each other: actor-system-terminate -> x -> actor-system-terminate",
    );
    let text = "phases.x.depends-on = ['actor-system-terminate']";
    let plan = Config::parse(text, Format::Toml).unwrap().plan().unwrap();
    assert_eq!(order(&plan)[11..], ["actor-system-terminate", "close-resources", "x"]);
}

#[test]
fn s200_close_resources_comes_after_actor_system_terminate() {
    let plan = Plan::default();
    let close = plan.phase(Phase::CLOSE_RESOURCES).unwrap();
    assert_eq!(close.timeout(), Duration::from_secs(5));
    assert!(close.recovers() && close.is_enabled());
    let depends_on: Vec<&Phase> = plan.depends_on(close).collect();
    assert_eq!(depends_on, [&Phase::ACTOR_SYSTEM_TERMINATE]);
    // A configuration may move it, like every phase.
    let text = "phases.close-resources.depends-on = ['service-stop']";
    let plan = Config::parse(text, Format::Toml).unwrap().plan().unwrap();
    assert_eq!(order(&plan).last(), Some(&"actor-system-terminate"));
}

#[test]
fn s09_a_timeout_of_zero_or_more_than_a_year_is_an_error() {
    assert_eq!(
        refusal(PhaseSpec::new("x").timeout(Duration::ZERO)),
        "phase x has a timeout of zero: disable the phase instead",
    );
    assert_eq!(
        refusal(PhaseSpec::new("x").timeout(Duration::MAX)),
        "phase x has a timeout longer than the maximum (one year)",
    );
    let shutdown = Shutdown::new();
    assert!(shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::ZERO).is_err());
}

#[tokio::test(start_paused = true)]
async fn s10_a_repeated_dependency_counts_once() {
    check(
        "a 1s; b 1s after a, a",
        expect![[r"
            0s a started
            1s a over
            1s b started
            2s b over
            2s shutdown over: clean
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s11_actor_system_terminate_waits_for_every_phase_that_is_not_after_it() {
    check(
        "actor-system-terminate 1s; flush-metrics 2s after before-actor-system-terminate; \
         alone 4s; close-resources 1s",
        expect![[r"
            0s alone started
            0s flush-metrics started
            2s flush-metrics over
            4s alone over
            4s actor-system-terminate started
            5s actor-system-terminate over
            5s close-resources started
            6s close-resources over
            6s shutdown over: clean
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s12_a_phase_starts_as_soon_as_its_dependencies_are_over() {
    check(
        "requests 2s; queue 4s; stores 1s after requests, queue; cache 1s after requests",
        expect![[r"
            0s queue started
            0s requests started
            2s requests over
            2s cache started
            3s cache over
            4s queue over
            4s stores started
            5s stores over
            5s shutdown over: clean
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s13_sequential_order_does_not_interleave_independent_chains() {
    check(
        "sequential; a1 1s; b1 1s; a2 1s after a1; b2 1s after b1; a3 1s after a2; b3 1s after b2",
        expect![[r"
            0s a1 started
            1s a1 over
            1s a2 started
            2s a2 over
            2s a3 started
            3s a3 over
            3s b1 started
            4s b1 over
            4s b2 started
            5s b2 over
            5s b3 started
            6s b3 over
            6s shutdown over: clean
        "]],
    )
    .await;
}

#[tokio::test]
async fn s14_the_critical_path_counts_enabled_phases_that_have_tasks() {
    let path = Plan::default().critical_path(|_| true);
    assert_eq!((path.phases.len(), path.worst_case), (13, Duration::from_secs(80)));

    let shutdown = Shutdown::new();
    let seconds = Duration::from_secs;
    shutdown.add_phase(PhaseSpec::new("short").timeout(seconds(3))).unwrap();
    shutdown.add_phase(PhaseSpec::new("long").timeout(seconds(30))).unwrap();
    shutdown.add_phase(PhaseSpec::new("off").timeout(seconds(90)).enabled(false)).unwrap();
    shutdown.add_phase(PhaseSpec::new("end").after("short").after("long")).unwrap();
    assert_eq!(shutdown.check_budget().critical_path.worst_case, Duration::ZERO);
    let mut handles = Vec::new();
    for phase in ["short", "long", "off", "end", "service-stop"] {
        handles.push(shutdown.add_task(phase, "task", async |_| ()).unwrap());
    }
    let path = shutdown.check_budget().critical_path;
    assert_eq!(path.phases, [Phase::new("long"), Phase::new("end")]);
    assert_eq!(path.worst_case, seconds(35));

    assert!(handles[1].cancel());
    let path = shutdown.check_budget().critical_path;
    assert_eq!((path.phases.len(), path.worst_case), (2, seconds(8)));

    // In a sequential plan, every chain counts.
    let mut plan = Plan::builder();
    plan.add(PhaseSpec::new("long").timeout(seconds(30))).unwrap();
    plan.set_order(Order::Sequential);
    assert_eq!(plan.build().critical_path(|_| true).worst_case, seconds(110));
}

#[test]
fn s03_before_is_kept_if_the_other_phase_replaces_its_dependencies() {
    // In either order of the names.
    for name in ["aaa", "zzz"] {
        let text = format!(
            "phases.{name}.before = ['service-stop']\n\
             phases.service-stop.depends-on = ['service-unbind']"
        );
        let plan = Config::parse(&text, Format::Toml).unwrap().plan().unwrap();
        let stop = plan.phase(Phase::SERVICE_STOP).unwrap();
        let depends_on: Vec<_> = plan.depends_on(stop).map(Phase::as_str).collect();
        assert_eq!(depends_on, ["service-unbind", name]);
    }
}

#[test]
fn s02_a_phase_that_the_code_declares_can_be_configured() {
    let config = Config::parse("phases.flush.timeout = '9s'", Format::Toml).unwrap();
    let shutdown = Shutdown::configured(config).unwrap();
    let spec = || PhaseSpec::new("flush").after(Phase::SERVICE_STOP).recover(false);
    shutdown.add_phase(spec().timeout(Duration::from_secs(1))).unwrap();
    let plan = shutdown.plan();
    let flush = plan.phase("flush").unwrap();
    assert_eq!(flush.timeout(), Duration::from_secs(9), "the configuration has priority");
    assert!(!flush.recovers(), "the code sets the rest");
    assert_eq!(plan.depends_on(flush).count(), 1);
    assert!(shutdown.add_phase(spec()).is_err(), "added twice");
}

#[test]
fn s02_phases_can_be_changed_in_code_before_there_is_a_shutdown() {
    let config = Config::new()
        .default_phase_timeout(Duration::from_secs(2))
        .phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(8))
        .phase_recovers(Phase::SERVICE_STOP, false)
        .phase_enabled(Phase::CLUSTER_LEAVE, false);
    let plan = config.plan().unwrap();
    let stop = plan.phase(Phase::SERVICE_STOP).unwrap();
    assert_eq!((stop.timeout().as_secs(), stop.recovers()), (8, false));
    assert!(!plan.phase(Phase::CLUSTER_LEAVE).unwrap().is_enabled());
    assert_eq!(plan.phase(Phase::SERVICE_UNBIND).unwrap().timeout().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn s200_a_shutdown_can_begin_and_be_resumed_after_the_actors() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let phases = [Phase::SERVICE_STOP, Phase::ACTOR_SYSTEM_TERMINATE, Phase::CLOSE_RESOURCES];
    for phase in &phases {
        shutdown.add_task(phase, "task", async |_| ()).unwrap();
    }
    let outcomes = |report: &adieu_core::Report| {
        phases.each_ref().map(|phase| report.phase(phase).unwrap().outcome.to_string())
    };
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    let [stop, actors, close] = outcomes(&report);
    assert!(stop.starts_with("skipped") && actors.starts_with("skipped"), "{report}");
    assert_eq!(close, "finished");

    // If the actors fail and their phase does not recover, resources stay open until it is resumed.
    let config = Config::for_tests().phase_recovers(Phase::ACTOR_SYSTEM_TERMINATE, false);
    let shutdown = Shutdown::configured(config).unwrap();
    let fail = adieu_testkit::faults::fail;
    shutdown.add_task(Phase::ACTOR_SYSTEM_TERMINATE, "task", fail).unwrap();
    shutdown.add_task(Phase::CLOSE_RESOURCES, "task", async |_| ()).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(outcomes(&report)[2].starts_with("skipped"), "{report}");
    let report = shutdown.resume_from(Phase::CLOSE_RESOURCES).unwrap().await.unwrap();
    assert_eq!(outcomes(&report)[2], "finished");
}

#[cfg(feature = "hocon")]
#[test]
fn s11_a_phase_of_akka_without_dependencies_comes_before_the_actors() {
    let text = "akka.coordinated-shutdown.phases { zzz { timeout = 1 s }, aaa {} }";
    let plan = Config::parse(text, Format::Hocon).unwrap().plan().unwrap();
    let place = |name: &str| order(&plan).iter().position(|phase| *phase == name).unwrap();
    for name in ["aaa", "zzz"] {
        assert!(place(name) < place("actor-system-terminate"), "{:?}", order(&plan));
    }
    assert_eq!(order(&plan).last(), Some(&"close-resources"));
}
