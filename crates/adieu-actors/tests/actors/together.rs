//! A system and a coordinated shutdown: each ends the other, and neither waits for itself.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::{ActorSystem, ActorTasks, NodeEnding, SystemStage, TerminateError};
use adieu_core::{Config, Outcome, Phase, Reason, Report, Shutdown, TaskReport};

use crate::frameworks::{Framework, Job, Kameo, Log, Plain, Ractor, Script};

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
    let said = log.clone();
    shutdown.add_task(before, "before", async move |_| said.add("before")).unwrap();
    assert!(F::send(&orders, Job::say(&log, "orders")).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["orders", "before", "orders stops"]);
    assert_eq!(system.stage(), SystemStage::Terminated);
    assert_eq!(task_of(&report, "terminate actor system shop").unwrap().outcome, Outcome::Finished);
}

async fn s174_terminating_the_system_runs_the_shutdown<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let said = log.clone();
    shutdown.add_task(Phase::SERVICE_STOP, "stop", async move |_| said.add("service")).unwrap();
    // Not even in a task of the shutdown does anybody wait for itself.
    let inside = system.clone();
    let terminate = async move |_| inside.terminate(LONG).await.map(drop);
    shutdown.add_task(Phase::CLUSTER_LEAVE, "terminate", terminate).unwrap();
    let report = system.terminate(LONG).await.unwrap();
    assert!(report.is_clean());
    assert_eq!(log.lines(), ["service", "orders stops"]);
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "actor-system-terminate");
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(1), "{report}");
    drop(orders);
}

async fn s174_an_actor_may_terminate_its_own_system<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let (inside, said) = (system.clone(), log.clone());
    let job = Job::new(move || async move {
        assert_eq!(inside.terminate(LONG).await.err(), Some(TerminateError::InsideActor));
        said.add("terminated");
    });
    assert!(F::send(&orders, job).await);
    let report = shutdown.completed().await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["terminated", "orders stops"]);
}

async fn s175_abort_skips_the_phases<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(system.abort(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["orders stops"]);
    assert!(shutdown.reason().is_none());
    // Whereas one that is shut down by itself takes the rest along.
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(shutdown.completed().await.unwrap().reason, "actor-system-terminate");
    drop(orders);
}

async fn s176_when_the_guardian_ends_all_does<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = F::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let path = adieu_actors::NodePath::user().child("guardian").unwrap();
    system.guardian(&path);
    system.stop(&path, LONG).await.unwrap();
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "actor-system-terminate");
    assert_eq!(log.lines(), ["guardian stops", "orders stops"]);
    drop((guardian, orders));
}

async fn s177_a_phase_can_wait_for_an_actor<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let spawn = async |name: &str| F::spawn(&system, None, name, Script::new(&log)).await.unwrap();
    let (orders, dead, stays) = (spawn("orders").await, spawn("dead").await, spawn("stays").await);
    let path = |name: &str| adieu_actors::NodePath::user().child(name).unwrap();
    system.stop(&path("dead"), LONG).await.unwrap();
    // The message on which it stops: here it is somebody else who stops it.
    let (inside, of) = (system.clone(), path("orders"));
    let stop = Job::new(move || async move {
        tokio::spawn(async move { inside.stop(&of, LONG).await });
    });
    let wait = |phase: Phase, name: &'static str, termination| {
        shutdown.add_actor_termination_task(phase, name, termination).unwrap();
    };
    wait(Phase::SERVICE_STOP, "stop orders", F::told(&orders, stop));
    wait(Phase::SERVICE_STOP, "orders", F::termination(&orders));
    wait(Phase::CLUSTER_LEAVE, "orders again", F::termination(&orders));
    wait(Phase::CLUSTER_LEAVE, "dead", F::termination(&dead));
    wait(Phase::CLUSTER_EXITING, "stays", F::termination(&stays));
    let said = log.clone();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "log", async move |_| said.add("leaving")).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome = |task: &str| &task_of(&report, task).unwrap().outcome;
    for done in ["stop orders", "orders", "orders again", "dead"] {
        assert_eq!(outcome(done), &Outcome::Finished, "{done}");
    }
    assert!(matches!(outcome("stays"), Outcome::TimedOut { .. }), "{report}");
    assert!(report.to_string().contains("/user/stays"), "{report}");
    assert_eq!(log.lines()[1..], ["orders stops", "leaving", "stays stops"]);
}

macro_rules! for_every_framework {
    ($($test:ident),* $(,)?) => {
        mod on_kameo { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Kameo>().await })* }
        mod on_ractor { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Ractor>().await })* }
    };
}

for_every_framework!(
    s173_the_last_phase_terminates_the_system,
    s174_terminating_the_system_runs_the_shutdown,
    s174_an_actor_may_terminate_its_own_system,
    s175_abort_skips_the_phases,
    s176_when_the_guardian_ends_all_does,
    s177_a_phase_can_wait_for_an_actor,
);

#[tokio::test(start_paused = true)]
async fn s173_who_is_stuck_is_killed_within_the_last_phase() {
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
async fn s173_a_reason_may_leave_the_system_alone() {
    let config = Config::for_tests().terminate_actor_system(false);
    let (shutdown, log) = (Shutdown::configured(config).unwrap(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = Plain::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    assert_eq!(system.stage(), SystemStage::Running);
    assert!(Plain::send(&orders, Job::say(&log, "still there")).await);
    assert!(system.terminate(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["still there", "orders stops"]);
    drop(Arc::clone(&orders));
}
