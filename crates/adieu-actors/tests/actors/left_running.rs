//! Actors and workers that a shutdown does not drain: the report contains their unfinished work.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::{ActorSystem, Worker, WorkerThreads};
use adieu_core::{Config, Format, Phase, Reason, Report, Shutdown};
use tokio_util::sync::CancellationToken;

use crate::frameworks::{Framework, Job, Log, Script};

/// Runs a shutdown with 20 messages at one actor, and none at the other.
async fn with_messages<F: Framework>(
    shutdown: Shutdown,
    run: impl AsyncFnOnce(&Shutdown) -> Arc<Report>,
) -> Arc<Report> {
    let log = Log::default();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let idle = F::spawn(&system, None, "idle", Script::new(&log)).await.unwrap();
    assert!(F::send(&orders, Job::forever()).await);
    for _ in 0..20 {
        assert!(F::send(&orders, Job::log(&log, "processed")).await);
    }
    tokio::task::yield_now().await;
    let report = run(&shutdown).await;
    assert_eq!(log.len(), 0);
    drop((orders, idle));
    report
}

fn check(report: &Arc<Report>) {
    assert!(!report.is_clean(), "{report}");
    let [finding] = &*report.findings else { panic!("{report}") };
    assert_eq!(&*finding.name, "actor system shop");
    assert!(finding.what.starts_with("left running, "), "{report}");
    assert!(finding.what.contains("1 actors with work: /user/orders"), "{report}");
    assert!(finding.what.contains("20 messages queued"), "{report}");
}

async fn s804_messages_of_actors_that_the_policy_leaves_running<F: Framework>() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let run = async |shutdown: &Shutdown| shutdown.run(Reason::Unknown).await.unwrap();
    check(&with_messages::<F>(shutdown, run).await);
}

async fn s804_messages_of_actors_whose_phase_is_disabled<F: Framework>() {
    let config = "[phases.actor-system-terminate]\nenabled = false\n";
    let shutdown = Shutdown::configured(Config::parse(config, Format::Toml).unwrap()).unwrap();
    let run = async |shutdown: &Shutdown| shutdown.run(Reason::Unknown).await.unwrap();
    check(&with_messages::<F>(shutdown, run).await);
}

async fn s804_messages_of_actors_whose_phase_was_skipped<F: Framework>() {
    let config = Config::for_tests().terminate_actor_system(true);
    let shutdown = Shutdown::configured(config).unwrap();
    let run = async |shutdown: &Shutdown| {
        shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap()
    };
    check(&with_messages::<F>(shutdown, run).await);
}

async fn s805_messages_that_an_undrained_actor_loses_in_the_shutdown<F: Framework>() {
    let (shutdown, log) = (Shutdown::configured(Config::for_tests()).unwrap(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let begun = shutdown.token();
    let fails = Job::new(move || async move {
        begun.cancelled().await;
        panic!("on purpose");
    });
    assert!(F::send(&orders, fails).await);
    for _ in 0..20 {
        assert!(F::send(&orders, Job::log(&log, "processed")).await);
    }
    let wait = async |_| tokio::time::sleep(Duration::from_millis(300)).await;
    shutdown.add_task(Phase::SERVICE_STOP, "wait", wait).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    let lost = "21 dead letters since the shutdown began";
    assert!(report.findings.iter().any(|finding| &*finding.what == lost), "{report}");
}

/// Returns the report of a shutdown that closes a resource while an actor uses it, and whose actors it
/// does not drain. The actor is idle when the shutdown is over.
async fn with_resource<F: Framework>(shutdown: Shutdown) -> Arc<Report> {
    let log = Log::default();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let closing = CancellationToken::new();
    let (used, ended) = (closing.clone(), log.clone());
    let uses = Job::new(move || async move {
        used.cancelled().await;
        ended.add("used");
    });
    assert!(F::send(&orders, uses).await);
    let close = {
        let log = log.clone();
        async move |_| {
            closing.cancel();
            while log.len() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    drop(orders);
    report
}

async fn s1006_actors_that_work_when_resources_close_are_reported<F: Framework>() {
    let disabled = "[phases.actor-system-terminate]\nenabled = false\n";
    let off = "terminate-actor-system = false\nrun-by-actor-system-terminate = false\n";
    for config in [disabled, off] {
        let shutdown = Shutdown::configured(Config::parse(config, Format::Toml).unwrap()).unwrap();
        let report = with_resource::<F>(shutdown).await;
        assert!(!report.is_clean() && report.exit_code == 70, "{report}");
        let finding = report.findings.first().unwrap_or_else(|| panic!("{report}"));
        assert_eq!(&*finding.name, "actor system shop");
        assert!(finding.what.contains("1 actors with work: /user/orders"), "{report}");
        assert!(finding.what.ends_with("when resources began to close"), "{report}");
    }
}

on_all_actors![
    s1006_actors_that_work_when_resources_close_are_reported,
    s804_messages_of_actors_that_the_policy_leaves_running,
    s804_messages_of_actors_whose_phase_is_disabled,
    s804_messages_of_actors_whose_phase_was_skipped,
    s805_messages_that_an_undrained_actor_loses_in_the_shutdown,
];

#[tokio::test]
async fn s804_messages_of_workers_whose_phase_was_skipped() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let threads = WorkerThreads::builder("back").count(1).start(async |mut worker: Worker<u32>| {
        while let Some(delivery) = worker.recv().await {
            worker.draining().cancelled().await;
            delivery.done();
        }
    });
    let threads = threads.unwrap();
    threads.on(&shutdown).unwrap();
    for number in 0..20 {
        threads.send(0, number).await.unwrap();
    }
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    assert!(!report.is_clean(), "{report}");
    let [finding] = &*report.findings else { panic!("{report}") };
    assert_eq!(&*finding.name, "worker threads back");
    let queued = ["19 messages queued, 1 being processed", "20 messages queued, 0 being processed"];
    assert!(queued.iter().any(|queued| finding.what.ends_with(queued)), "{report}");
    assert!(threads.shutdown(Duration::from_secs(60)).await.is_clean());
}
