//! How nodes end badly, and what the report, the readiness and the exit code then show.

use std::io::IsTerminal;
use std::task::Poll;
use std::time::Duration;

use adieu_cluster::store::Memory;
use adieu_cluster::{SingletonCx, Stage};
use adieu_core::{Config, KillAfter, Phase, Readiness, Reason, Report, Shutdown};

use crate::stage::{History, SECOND, TTL, config, node, node_with, until};

fn findings(report: &Report) -> String {
    assert!(!report.is_clean(), "{report}");
    report.findings.iter().map(|it| format!("{}: {}\n", it.name, it.what)).collect()
}

#[tokio::test(start_paused = true)]
async fn s1260_a_node_that_is_asked_to_leave_serves_until_routers_have_reacted() {
    if std::io::stdin().is_terminal() {
        return; // At a terminal there are no routers, and no lame duck.
    }
    let store = Memory::new();
    let config = Config::new().kill_after(KillAfter::Never);
    let one = node_with(&store, "one", config, |it| it);
    let gate = one.shutdown.add_gate("http").unwrap();
    let one = one.joined().await;
    one.cluster.request_leave(one.cluster.id()).await.unwrap();
    one.shutdown.begun().await;
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(one.shutdown.readiness(), Readiness::Draining);
    assert!(gate.enter().is_ok(), "refused before routers could react");
    let report = one.completed().await;
    assert!(report.is_clean(), "{report}");
    assert!(gate.enter().is_err());
}

#[tokio::test(start_paused = true)]
async fn s1261_a_place_lost_while_the_shutdown_runs_is_reported() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    one.store.faults().cut(true);
    let (report, _) = one.leave().await;
    assert_eq!(one.cluster.stage(), Stage::Down);
    let findings = findings(&report);
    assert!(findings.contains("cluster shop: lost its place while the shutdown ran"), "{findings}");
    assert!(findings.contains("not handed over: sweeper"), "{findings}");
}

/// A place that was lost before is the reason of the shutdown, and not reported again.
#[tokio::test(start_paused = true)]
async fn s1261_a_place_lost_before_the_shutdown_is_its_reason() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    one.store.faults().cut(true);
    let report = one.completed().await;
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
    assert!(report.findings.is_empty(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1262_a_singleton_that_fails_while_it_stops_is_reported() {
    let store = Memory::new();
    for panics in [false, true] {
        let one = node(&store, "one");
        let ledger = move |me: SingletonCx| async move {
            me.stopped().await;
            assert!(!panics, "no disk");
            Err::<(), _>(std::io::Error::other("no disk"))
        };
        one.cluster.singleton("ledger", ledger).unwrap();
        let one = one.joined().await;
        let runs =
            || one.cluster.status().singletons.first().is_some_and(|it| it.instance.is_some());
        until("it runs", runs).await;
        let (report, _) = one.leave().await;
        assert_eq!(one.cluster.stage(), Stage::Removed);
        let findings = findings(&report);
        assert!(findings.contains("singleton ledger failed while it stopped"), "{findings}");
        assert!(findings.contains("no disk"), "{findings}");
    }
}

/// Without the phase in which singletons are handed over, the end drops them.
#[tokio::test(start_paused = true)]
async fn s1262_a_singleton_that_no_phase_has_stopped_is_reported() {
    let (store, history) = (Memory::new(), History::default());
    let config = config().phase_enabled(Phase::CLUSTER_EXITING, false);
    let config = config.phase_enabled(Phase::CLUSTER_EXITING_DONE, false);
    let one = node_with(&store, "one", config, |it| it).sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    let (report, _) = one.leave().await;
    let findings = findings(&report);
    assert!(
        findings.contains("singletons dropped without having been stopped: sweeper"),
        "{findings}"
    );
}

#[tokio::test(start_paused = true)]
async fn s1263_an_instance_that_has_ended_is_not_reported_as_blocking() {
    let (store, history) = (Memory::new(), History::default());
    let long = |it: adieu_cluster::ClusterBuilder| it.ttl(6 * TTL);
    let one = node_with(&store, "one", config(), long).sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    one.store.faults().delay(60 * SECOND);
    let (report, _) = one.leave().await;
    assert!(history.running().is_empty(), "{report}");
    let text = format!("{report:?}");
    assert!(!report.is_clean(), "{report}");
    assert!(!text.contains("cannot be stopped"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1264_readiness_status_and_metrics_follow_the_clock() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    one.shutdown.mark_started();
    until("it is ready", || one.shutdown.readiness() == Readiness::Ready).await;
    // The clock advances, and the driver does not run: all its workers are blocked.
    let mut advance = std::pin::pin!(tokio::time::advance(2 * TTL));
    let polled = std::future::poll_fn(|cx| Poll::Ready(advance.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "the driver has run");
    assert_eq!(one.cluster.stage(), Stage::Down);
    let status = one.cluster.status();
    assert_eq!((status.stage.as_str(), status.session_left), ("down", Duration::ZERO));
    assert!(status.loss.is_some_and(|loss| loss.contains("session")), "no reason");
    assert_eq!(one.shutdown.readiness(), Readiness::Unavailable);
    let pages = adieu_core::adapter::pages(&one.shutdown);
    let mut metrics = adieu_core::adapter::Metrics::default();
    pages.iter().for_each(|(_, page)| page.metrics(&mut metrics));
    let text = metrics.to_string();
    assert!(text.contains("adieu_cluster_leads{cluster=\"shop\"} 0"), "{text}");
    assert!(text.contains("adieu_cluster_member{cluster=\"shop\"} 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1267_a_join_that_the_shutdown_interrupts_is_not_a_failure_of_the_body() {
    for is_late in [false, true] {
        let store = Memory::new();
        store.faults().cut(true);
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let exit = shutdown.run_on_exit();
        let cluster = adieu_cluster::Cluster::new(store, "shop").on(&shutdown).unwrap();
        let signal = async {
            if !is_late {
                tokio::time::sleep(SECOND).await;
            }
            drop(shutdown.run(Reason::Unknown));
        };
        let joined = match is_late {
            false => tokio::join!(cluster.join(), signal).0,
            true => {
                signal.await;
                cluster.join().await
            }
        };
        // As the body of a program returns it.
        let code = exit.finish(joined.map_err(std::io::Error::other)).await;
        assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
    }
}

#[tokio::test(start_paused = true)]
async fn s1279_a_join_that_is_too_late_ends_with_255_unless_the_body_fails() {
    for (fails, expected) in [(false, 255), (true, 1)] {
        let store = Memory::new();
        store.faults().cut(true);
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let exit = shutdown.run_on_exit();
        let cluster = adieu_cluster::Cluster::new(store, "shop").on(&shutdown).unwrap();
        let joined = cluster.join().await;
        assert_eq!(shutdown.reason(), Some(Reason::ClusterJoinUnsuccessful));
        let code = exit.finish(if fails { joined } else { Ok(()) }).await;
        assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::from(expected)));
    }
}

#[tokio::test(start_paused = true)]
async fn s1272_a_process_has_a_node_of_one_name_once() {
    let store = Memory::new();
    let shutdown = Shutdown::configured(config()).unwrap();
    let builder = || adieu_cluster::Cluster::new(store.clone(), "shop").node("one");
    let _one = builder().on(&shutdown).unwrap();
    let error = builder().on(&shutdown).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node one of cluster shop is set up twice in this process: use another name, or clone the \
         `Cluster`"
    );
    // Another node, and the same node of another cluster.
    assert!(builder().node("two").on(&shutdown).is_ok());
    assert!(adieu_cluster::Cluster::new(store.clone(), "till").node("one").on(&shutdown).is_ok());
}

#[tokio::test(start_paused = true)]
async fn s1271_a_join_that_waits_names_the_error_of_the_store() {
    let store = Memory::new();
    let one = node(&store, "one");
    one.store.faults().cut(true);
    let (joined, ()) = tokio::join!(one.cluster.join(), async {
        tokio::time::sleep(2 * SECOND).await;
        let waiting = one.cluster.status().waiting_for.unwrap();
        assert!(waiting.what.starts_with("join: waiting for the store: "), "{waiting}");
        assert!(waiting.what.contains("cut"), "{waiting}");
    });
    let error = joined.unwrap_err().to_string();
    assert!(error.contains("join: waiting for the store: ") && error.contains("cut"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s1271_the_error_is_no_longer_shown_when_the_store_answers() {
    let store = Memory::new();
    let _one = node(&store, "one").joined().await;
    let twin = node(&store, "one");
    twin.store.faults().cut(true);
    let (_, ()) = tokio::join!(twin.cluster.join(), async {
        tokio::time::sleep(2 * SECOND).await;
        // The store answers the request to open a session, and is slow to load the table.
        twin.store.faults().delay(SECOND);
        twin.store.faults().cut(false);
        tokio::time::sleep(3 * SECOND).await;
        let waiting = twin.cluster.status().waiting_for.unwrap();
        assert_eq!(waiting.what, "join: waiting for the store");
        twin.store.faults().delay(Duration::ZERO);
        tokio::time::sleep(4 * SECOND).await;
        let waiting = twin.cluster.status().waiting_for.unwrap();
        assert_eq!(waiting.what, "join: waiting until the earlier node one is gone");
    });
    twin.completed().await;
    assert_eq!(twin.cluster.stage(), Stage::Outside);
}
