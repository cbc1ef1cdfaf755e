//! A system and a coordinated shutdown: each terminates the other, and neither waits for itself.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::{ActorSystem, ActorTasks, NodeEnding, NodePath, SystemStage, TerminateError};
use adieu_core::{Config, Outcome, Phase, Reason, Report, Shutdown, TaskReport};

use crate::frameworks::{Framework, Job, Kameo, Log, Plain, Script};

const LONG: Duration = Duration::from_secs(60);

fn shutdown() -> Shutdown {
    let config = Config::for_tests().terminate_actor_system(true);
    Shutdown::configured(config.run_by_actor_system_terminate(true)).unwrap()
}

fn task_of<'a>(report: &'a Report, name: &str) -> Option<&'a TaskReport> {
    report.phases.iter().find_map(|phase| phase.task(name))
}

async fn s173_the_last_phase_terminates_the_system<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let before = Phase::BEFORE_ACTOR_SYSTEM_TERMINATE;
    let inner = log.clone();
    shutdown.add_task(before, "before", async move |_| inner.add("before")).unwrap();
    assert!(F::send(&orders, Job::log(&log, "orders")).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["orders", "before", "orders stops"]);
    assert_eq!(system.stage(), SystemStage::Terminated);
    assert_eq!(task_of(&report, "terminate actor system shop").unwrap().outcome, Outcome::Finished);
}

async fn s240_a_system_without_a_handle_is_drained<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let orders = {
        let system = ActorSystem::on(&shutdown, "shop").unwrap();
        F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap()
    };
    for number in 0..20 {
        let log = log.clone();
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            log.add(format!("{number}"));
        });
        assert!(F::send(&orders, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let mut expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    expected.push("orders stops".into());
    assert_eq!(log.lines(), expected);
}

async fn s174_terminating_the_system_runs_the_shutdown<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let inner = log.clone();
    shutdown.add_task(Phase::SERVICE_STOP, "stop", async move |_| inner.add("service")).unwrap();
    let report = system.terminate(LONG).await.unwrap();
    assert!(report.is_clean());
    assert_eq!(log.lines(), ["service", "orders stops"]);
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "actor-system-terminate");
    assert!(report.is_clean(), "{report}");
    drop(orders);
}

async fn s356_a_task_of_the_shutdown_that_terminates_the_system_drains_it_at_once<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let (inside, inner) = (system.clone(), log.clone());
    let terminate = async move |_| {
        let report = inside.terminate(LONG).await;
        inner.add("terminated");
        report.map(drop)
    };
    shutdown.add_task(Phase::CLUSTER_LEAVE, "terminate", terminate).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(1), "{report}");
    assert_eq!(log.lines(), ["orders stops", "terminated"]);
    drop(orders);
}

async fn s357_an_actor_that_terminates_its_own_system_gets_an_error<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let (inside, inner) = (system.clone(), log.clone());
    let job = Job::new(move || async move {
        assert_eq!(inside.terminate(LONG).await.err(), Some(TerminateError::InsideActor));
        inner.add("terminated");
    });
    assert!(F::send(&orders, job).await);
    let report = shutdown.completed().await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["terminated", "orders stops"]);
}

async fn s175_abort_does_not_run_the_shutdown<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(system.abort(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["orders stops"]);
    assert!(shutdown.reason().is_none());
    drop(orders);
}

async fn s358_shutdown_of_the_system_runs_the_shutdown_afterwards<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let inner = log.clone();
    shutdown.add_task(Phase::SERVICE_STOP, "stop", async move |_| inner.add("service")).unwrap();
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(shutdown.completed().await.unwrap().reason, "actor-system-terminate");
    assert_eq!(log.lines(), ["orders stops", "service"]);
    drop(orders);
}

async fn s176_the_end_of_the_guardian_runs_the_shutdown<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = F::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("guardian").unwrap();
    system.set_guardian(&path);
    system.stop(&path, LONG).await.unwrap();
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "actor-system-terminate");
    assert_eq!(log.lines(), ["guardian stops", "orders stops"]);
    drop((guardian, orders));
}

async fn s177_a_phase_waits_until_an_actor_has_terminated<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let spawn = async |name: &str| F::spawn(&system, None, name, Script::new(&log)).await.unwrap();
    let (orders, ended, stays) =
        (spawn("orders").await, spawn("ended").await, spawn("stays").await);
    let path = |name: &str| NodePath::user().child(name).unwrap();
    system.stop(&path("ended"), LONG).await.unwrap();
    // Other code stops it during the phase.
    let (inside, of) = (system.clone(), path("orders"));
    let stop = async move |_| inside.stop(&of, LONG).await.map(drop).ok_or("not found");
    shutdown.add_task(Phase::SERVICE_STOP, "stop orders", stop).unwrap();
    let wait = |phase: Phase, name: &'static str, termination| {
        shutdown.add_actor_termination_task(phase, name, termination).unwrap();
    };
    wait(Phase::SERVICE_STOP, "orders", F::termination(&orders));
    wait(Phase::CLUSTER_LEAVE, "orders again", F::termination(&orders));
    wait(Phase::CLUSTER_LEAVE, "ended", F::termination(&ended));
    wait(Phase::CLUSTER_EXITING, "stays", F::termination(&stays));
    let inner = log.clone();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "log", async move |_| inner.add("leaving")).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome = |task: &str| &task_of(&report, task).unwrap().outcome;
    for done in ["stop orders", "orders", "orders again", "ended"] {
        assert_eq!(outcome(done), &Outcome::Finished, "{done}");
    }
    assert!(matches!(outcome("stays"), Outcome::TimedOut { .. }), "{report}");
    assert!(report.to_string().contains("/user/stays"), "{report}");
    assert_eq!(log.lines()[1..], ["orders stops", "leaving", "stays stops"]);
}

async fn s359_a_termination_task_sends_its_stop_message_first<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let (inside, path) = (system.clone(), NodePath::user().child("orders").unwrap());
    let stop = Job::new(move || async move {
        tokio::spawn(async move { inside.stop(&path, LONG).await });
    });
    let termination = F::stopped_by(&orders, stop);
    shutdown.add_actor_termination_task(Phase::SERVICE_STOP, "orders", termination).unwrap();
    let inner = log.clone();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "log", async move |_| inner.add("leaving")).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["orders stops", "leaving"]);
}

on_kameo_and_ractor![
    s173_the_last_phase_terminates_the_system,
    s240_a_system_without_a_handle_is_drained,
    s174_terminating_the_system_runs_the_shutdown,
    s356_a_task_of_the_shutdown_that_terminates_the_system_drains_it_at_once,
    s357_an_actor_that_terminates_its_own_system_gets_an_error,
    s175_abort_does_not_run_the_shutdown,
    s358_shutdown_of_the_system_runs_the_shutdown_afterwards,
    s176_the_end_of_the_guardian_runs_the_shutdown,
    s177_a_phase_waits_until_an_actor_has_terminated,
    s359_a_termination_task_sends_its_stop_message_first,
];

#[tokio::test(start_paused = true)]
async fn s354_actors_are_killed_within_the_last_phase_and_named() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let stuck = Plain::spawn(&system, None, "stuck", Script::new(&log)).await.unwrap();
    assert!(Plain::send(&stuck, Job::forever()).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let Outcome::Failed { error } =
        &task_of(&report, "terminate actor system shop").unwrap().outcome
    else {
        panic!("{report}")
    };
    assert!(error.contains("/user/stuck was killed"), "{error}");
    assert_eq!(log.lines(), ["stuck stops"]);
    let drained = system.terminated().await;
    assert_eq!(drained.node("/user/stuck").unwrap().ending(), &NodeEnding::Killed);
}

#[tokio::test(start_paused = true)]
async fn s173_the_system_runs_on_if_the_policy_does_not_terminate_it() {
    let config = Config::for_tests().terminate_actor_system(false);
    let (shutdown, log) = (Shutdown::configured(config).unwrap(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = Plain::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    assert_eq!(system.stage(), SystemStage::Running);
    assert!(Plain::send(&orders, Job::log(&log, "still running")).await);
    assert!(system.terminate(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["still running", "orders stops"]);
    drop(Arc::clone(&orders));
}

#[tokio::test(start_paused = true)]
async fn s355_the_timeout_of_terminate_limits_only_the_actors() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let stuck = Plain::spawn(&system, None, "stuck", Script::new(&log)).await.unwrap();
    assert!(Plain::send(&stuck, Job::forever()).await);
    let inner = log.clone();
    let slow = async move |_| {
        tokio::time::sleep(Duration::from_secs(4)).await;
        inner.add("slow task ends");
    };
    shutdown.add_task(Phase::SERVICE_STOP, "slow", slow).unwrap();
    let report = system.terminate(Duration::from_secs(1)).await.unwrap();
    assert_eq!(log.lines(), ["slow task ends", "stuck stops"]);
    assert!(report.took < Duration::from_millis(1100), "{report}");
    let report = shutdown.completed().await.unwrap();
    assert!(report.took >= Duration::from_secs(5), "{report}");
}

/// Returns the exit code of a body that returns this error when the shutdown is over.
async fn exit_code(
    shutdown: &Shutdown,
    error: impl std::error::Error + Send + Sync + 'static,
) -> String {
    // Wrapped in an error that does not name its cause.
    let error = Err::<(), _>(std::io::Error::other(error));
    format!("{:?}", shutdown.run_on_exit().finish(error).await)
}

#[tokio::test(start_paused = true)]
async fn s192_a_message_or_child_that_the_drain_refuses_is_no_failure_of_the_body() {
    let success = format!("{:?}", std::process::ExitCode::SUCCESS);

    let (shutdown, _system, orders, log) = drained().await;
    let refused = orders.tell(Job::log(&log, "late")).await.unwrap_err();
    assert_eq!(exit_code(&shutdown, std::io::Error::other(refused.to_string())).await, success);

    let (shutdown, system, orders, log) = drained().await;
    let child = Kameo::spawn(&system, Some(&orders), "late", Script::new(&log)).await;
    let Err(refused) = child else { panic!("it was spawned") };
    assert_eq!(exit_code(&shutdown, refused).await, success);

    let (shutdown, ..) = drained().await;
    assert_ne!(exit_code(&shutdown, std::io::Error::other("no database")).await, success);
}

/// A shutdown that is over, and an actor that it has stopped. A process decides its exit code once, so
/// each case has its own.
async fn drained() -> (Shutdown, ActorSystem, <Kameo as Framework>::Ref, Log) {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = Kameo::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    (shutdown, system, orders, log)
}

#[tokio::test(start_paused = true)]
async fn s176_a_system_without_a_shutdown_is_drained_when_its_guardian_ends() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let guardian = Kameo::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
    let orders = Kameo::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("guardian").unwrap();
    system.set_guardian(&path);
    system.stop(&path, LONG).await.unwrap();
    // No caller awaits the drain.
    tokio::time::timeout(LONG, orders.terminated()).await.expect("it ends");
    assert_eq!(log.lines(), ["guardian stops", "orders stops"]);
    assert!(system.terminated().await.is_clean());
    drop(guardian);
}

#[tokio::test]
async fn s240_a_shutdown_that_never_runs_is_dropped_with_its_handles() {
    let shutdown = shutdown();
    let weak = shutdown.downgrade();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    drop(shutdown);
    assert!(weak.upgrade().is_some(), "a handle of the system keeps it alive");
    drop(system);
    assert!(weak.upgrade().is_none());
}
