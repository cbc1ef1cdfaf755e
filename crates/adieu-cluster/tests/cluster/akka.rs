//! The cases of Akka's cluster suites that concern members and singletons, each named after its suite.
//! Cases about the shards of regions are in `src/world/scenarios/akka.rs`, on the machines alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Memory, Store};
use adieu_cluster::{JoinError, SingletonCx, Stage};
use adieu_core::{Phase, Reason, TaskSpec};
use tokio::time::{Instant, sleep};

use crate::stage::{History, SECOND, TTL, TestNode, config, id, is_at, node, node_with, until};

const PREFIX: &str = "adieu/cluster/shop/";

/// Nodes of these names, all members, with the singleton at the first.
async fn cluster_of<const N: usize>(
    store: &Memory,
    history: &History,
    names: [&str; N],
) -> [TestNode; N] {
    cluster_with(store, history, names, |cx| async move { cx.stopped().await }).await
}

async fn cluster_with<const N: usize, Fut>(
    store: &Memory,
    history: &History,
    names: [&str; N],
    sweeper: fn(SingletonCx) -> Fut,
) -> [TestNode; N]
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(node(store, name).singleton("sweeper", history, sweeper).joined().await);
        until("it runs at the first", || history.running() == [names[0]]).await;
    }
    // From now on none of them has been ready for a moment only.
    sleep(TTL).await;
    nodes.try_into().ok().unwrap()
}

/// An instance that takes a while to stop.
async fn stops_slowly(cx: SingletonCx) {
    cx.stopped().await;
    sleep(5 * SECOND).await;
}

// --- ClusterSpec ---

#[tokio::test(start_paused = true)]
async fn cluster_spec_leave_by_running_the_shutdown() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two] = cluster_of(&store, &history, ["one", "two"]).await;
    let (report, _) = one.leave().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((one.cluster.stage(), report.exit_code), (Stage::Removed, 0));
    until("two is alone", || two.cluster.status().nodes.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn cluster_spec_leave_by_running_the_shutdown_while_joining() {
    let store = Memory::new();
    // A node that is not ready is not acknowledged, so it stays joining.
    let one = node(&store, "one");
    one.shutdown.mark_started();
    one.shutdown.cordon();
    let leaves = async {
        is_at(&one, Stage::Joining).await;
        one.leave().await
    };
    let (joined, (report, took)) = tokio::join!(one.cluster.join(), leaves);
    assert!(report.is_clean() && took < SECOND, "{took:?} {report}");
    assert_eq!(one.cluster.stage(), Stage::Removed);
    let error = joined.unwrap_err();
    assert!(matches!(error, JoinError::ShuttingDown { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cluster_spec_leave_from_elsewhere_runs_the_shutdown() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two] = cluster_of(&store, &history, ["one", "two"]).await;
    two.cluster.request_leave(&id("one")).await.unwrap();
    let report = one.completed().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterLeaving));
    assert_eq!((one.cluster.stage(), report.exit_code), (Stage::Removed, 0));
    until("it runs at two", || history.running() == ["two"]).await;
    history.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn cluster_spec_down_runs_the_shutdown() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two] = cluster_of(&store, &history, ["one", "two"]).await;
    two.cluster.declare_dead(&id("one")).await.unwrap();
    let report = one.completed().await;
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
    assert_eq!((one.cluster.stage(), report.exit_code), (Stage::Down, 255));
    until("it runs at two", || history.running() == ["two"]).await;
    history.assert_sound();
}

/// The suite waits for fifteen seconds, with `shutdown-after-unsuccessful-join-seed-nodes`.
#[tokio::test(start_paused = true)]
async fn shutdown_after_join_seed_nodes_spec_join_deadline() {
    let store = Memory::new();
    // The cluster stops, and one node of it does not end, so none can join.
    let long = config().phase_timeout("service-stop", 60 * SECOND);
    let hangs = node_with(&store, "hangs", long, |it| it).joined().await;
    let never = |_| std::future::pending::<()>();
    hangs.shutdown.add_task(Phase::SERVICE_STOP, TaskSpec::new("never"), never).unwrap();
    hangs.cluster.stop_all().await.unwrap();
    let late = node_with(&store, "late", config(), |it| it.join_deadline(15 * SECOND));
    let begun = Instant::now();
    let error = late.cluster.join().await.unwrap_err();
    assert!(matches!(error, JoinError::TimedOut { .. }), "{error}");
    assert_eq!(begun.elapsed(), 15 * SECOND);
    assert_eq!(late.completed().await.exit_code, 255);
    assert_eq!(late.shutdown.reason(), Some(Reason::ClusterJoinUnsuccessful));
}

/// The suite has seven variants: which settings are compared, and on which side they differ.
#[tokio::test(start_paused = true)]
async fn join_config_compat_checker_spec_seven_variants() {
    let sweeper = r#""sweeper":{"kind":"singleton","shards":1}"#;
    let region = r#""cart":{"kind":"region","shards":16}"#;
    let written = |protocol: u32, regions: &[&str]| {
        format!(r#"{{"protocol":{protocol},"regions":{{{}}}}}"#, regions.join(","))
    };
    let variants: [(&str, Option<String>, Option<&str>); 7] = [
        ("no configuration yet", None, None),
        ("the same", Some(written(1, &[sweeper])), None),
        ("the cluster has more", Some(written(1, &[region, sweeper])), None),
        ("this node has more", Some(written(1, &[region])), None),
        ("another protocol", Some(written(2, &[sweeper])), Some("protocol")),
        (
            "another kind",
            Some(written(1, &[r#""sweeper":{"kind":"region","shards":1}"#])),
            Some("regions.sweeper.kind"),
        ),
        (
            "another number of shards",
            Some(written(1, &[r#""sweeper":{"kind":"singleton","shards":2}"#])),
            Some("regions.sweeper.shards"),
        ),
    ];
    for (variant, theirs, differs) in variants {
        let (store, history) = (Memory::new(), History::default());
        if let Some(theirs) = theirs {
            let commit = Commit::new().create(format!("{PREFIX}config"), theirs);
            assert!(matches!(store.commit(&commit).await.unwrap(), Committed::Done(_)));
        }
        let one = node(&store, "one").sweeper(&history);
        match (one.cluster.join().await, differs) {
            (Ok(()), None) => assert_eq!(one.shutdown.reason(), None, "{variant}"),
            (Err(JoinError::Incompatible { source, .. }), Some(field)) => {
                assert_eq!(source.field, field, "{variant}");
                let report = one.completed().await;
                assert_eq!(report.reason, Reason::IncompatibleConfiguration.to_string());
            }
            (joined, _) => panic!("{variant}: {joined:?}"),
        }
    }
}

// --- sharding suites, as far as they concern nodes and singletons ---

/// The coordinator of Akka is the leader here; it runs on the node that leaves.
#[tokio::test(start_paused = true)]
async fn cluster_sharding_graceful_shutdown_oldest_spec_the_leader_leaves() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two] = cluster_of(&store, &history, ["one", "two"]).await;
    assert_eq!(two.cluster.status().leader, Some(id("one")));
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND, "{took:?} {report}");
    until("two leads and runs it", || {
        two.cluster.status().leader == Some(id("two")) && history.running() == ["two"]
    })
    .await;
    history.assert_sound();
}

/// Instances that stop slowly, at the node that also leads.
#[tokio::test(start_paused = true)]
async fn cluster_sharding_graceful_shutdown_oldest_spec_slow_stop_at_the_leader() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two, _three] =
        cluster_with(&store, &history, ["one", "two", "three"], stops_slowly).await;
    assert_eq!(two.cluster.status().leader, Some(id("one")));
    let begun = Instant::now();
    let (report, took) = one.leave().await;
    assert!(report.is_clean(), "{report}");
    assert!((5 * SECOND..6 * SECOND).contains(&took), "{took:?}");
    assert!(history.ended_at("one") - begun >= 5 * SECOND);
    until("it runs elsewhere", || history.running().len() == 1).await;
    history.assert_sound();
}

/// A task of the application in the same phase as the hand-off takes long. The hand-off does not
/// wait for it.
#[tokio::test(start_paused = true)]
async fn cluster_sharding_graceful_shutdown_spec_a_slow_task_holds_no_entity_back() {
    let (store, history) = (Memory::new(), History::default());
    let [one, _two] = cluster_of(&store, &history, ["one", "two"]).await;
    for phase in [Phase::CLUSTER_SHARDING_SHUTDOWN_REGION, Phase::CLUSTER_EXITING] {
        let slow = TaskSpec::new("slow");
        one.shutdown.add_task(phase, slow, |_| async { sleep(4 * SECOND).await }).unwrap();
    }
    let leaves = one.leave();
    let moves = async {
        let begun = Instant::now();
        until("it runs at two", || history.running() == ["two"]).await;
        begun.elapsed()
    };
    let ((report, took), moved) = tokio::join!(leaves, moves);
    assert!(report.is_clean() && took >= 8 * SECOND, "{took:?} {report}");
    // After the first slow task, and not after the second.
    assert!((4 * SECOND..5 * SECOND).contains(&moved), "{moved:?}");
    let task = |phase: &str, name: &str| report.phase(phase).unwrap().task(name).unwrap().clone();
    let regions = task("cluster-sharding-shutdown-region", "cluster: hand over regions");
    assert!(regions.took < Some(SECOND), "{regions:?}");
    history.assert_sound();
}

/// An instance ignores that it is to stop.
#[tokio::test(start_paused = true)]
async fn cluster_sharding_spec_an_instance_that_ignores_the_stop() {
    let (store, history) = (Memory::new(), History::default());
    let stubborn = |_| std::future::pending::<()>();
    let [one, two] = cluster_with(&store, &history, ["one", "two"], stubborn).await;
    let (report, took) = one.leave().await;
    assert!(!report.is_clean() && took < 10 * SECOND, "{took:?} {report}");
    assert_eq!(one.cluster.stage(), Stage::Removed);
    until("it runs at two", || history.running() == ["two"]).await;
    history.assert_sound();
    drop(two);
}

/// Two nodes shut down while a task before the cluster's phases still needs the singleton
/// (akka 28416): it runs until that task has ended, and then at the node that stays.
#[tokio::test(start_paused = true)]
async fn coordinated_shutdown_sharding_spec_two_nodes_while_a_task_still_asks() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two, three] = cluster_of(&store, &history, ["one", "two", "three"]).await;
    let was_there = Arc::new(AtomicBool::new(true));
    for node in [&one, &two] {
        let (was_there, history) = (Arc::clone(&was_there), history.clone());
        let asks = move |_| async move {
            for _ in 0..30 {
                sleep(SECOND / 10).await;
                was_there.fetch_and(history.running() == ["one"], Ordering::Relaxed);
            }
        };
        node.shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, TaskSpec::new("asks"), asks).unwrap();
    }
    let ((first, took), (second, _)) = tokio::join!(one.leave(), two.leave());
    assert!(first.is_clean() && second.is_clean(), "{first}\n{second}");
    assert!(took < 4 * SECOND, "{took:?}");
    assert!(was_there.load(Ordering::Relaxed), "{:#?}", history.entries());
    until("it runs at three", || history.running() == ["three"]).await;
    assert_eq!(history.owners(), ["one", "three"]);
    history.assert_sound();
    drop(three);
}

/// A node is declared dead while it is the leader and runs the singleton.
#[tokio::test(start_paused = true)]
async fn cluster_shard_coordinator_downing_spec_the_leader_is_down() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two, _three] = cluster_of(&store, &history, ["one", "two", "three"]).await;
    one.store.faults().cut(true);
    until("another leads and runs it", || {
        two.cluster.status().leader != Some(id("one"))
            && !history.running().contains(&"one".into())
            && !history.running().is_empty()
    })
    .await;
    history.assert_sound();
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
    until("one is noted as dead", || {
        two.cluster.status().gone.iter().any(|gone| gone.node == id("one"))
    })
    .await;
}

// --- singleton suites ---

/// The singleton's node leaves, three times, also the last one.
#[tokio::test(start_paused = true)]
async fn cluster_singleton_manager_leave_spec_three_times_also_the_last() {
    let (store, history) = (Memory::new(), History::default());
    let mut nodes = Vec::from(cluster_of(&store, &history, ["one", "two", "three"]).await);
    while !nodes.is_empty() {
        let owner = history.running().pop().unwrap();
        let at = nodes.iter().position(|node| node.cluster.id().as_str() == owner).unwrap();
        let leaver = nodes.remove(at);
        let (report, took) = leaver.leave().await;
        assert!(report.is_clean() && took < SECOND, "{took:?} {report}");
        until("it moves", || history.running().len() == nodes.len().min(1)).await;
    }
    assert_eq!(history.owners().len(), 3);
    history.assert_sound();
}

/// The instance at the first of five takes long to stop. The second and the fourth leave meanwhile,
/// and do not wait for it. No other instance begins before it has ended.
#[tokio::test(start_paused = true)]
async fn cluster_singleton_manager_leave2_spec_slow_while_second_and_fourth_leave() {
    let (store, history) = (Memory::new(), History::default());
    let names = ["one", "two", "three", "four", "five"];
    let [one, two, _three, four, _five] = cluster_with(&store, &history, names, stops_slowly).await;
    let ((slow, slow_took), (second, second_took), (fourth, fourth_took)) =
        tokio::join!(one.leave(), two.leave(), four.leave());
    assert!(slow.is_clean() && second.is_clean() && fourth.is_clean());
    assert!(slow_took >= 5 * SECOND, "{slow_took:?}");
    assert!(second_took < SECOND && fourth_took < SECOND, "{second_took:?} {fourth_took:?}");
    until("it runs at three or five", || {
        history.running() == ["three"] || history.running() == ["five"]
    })
    .await;
    assert_eq!(history.owners().len(), 2, "once: {:?}", history.owners());
    assert!(history.entries().last().unwrap().at >= history.ended_at("one"));
    history.assert_sound();
}

/// Nodes leave one after another, and the singleton follows without waiting for any timer.
#[tokio::test(start_paused = true)]
async fn cluster_singleton_leaving_speed_spec() {
    let (store, history) = (Memory::new(), History::default());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let nodes = cluster_of(&store, &history, names).await;
    let mut longest = Duration::ZERO;
    for (at, node) in nodes.iter().enumerate() {
        let begun = Instant::now();
        let (report, _) = node.leave().await;
        assert!(report.is_clean(), "{report}");
        let runs = usize::from(at + 1 < nodes.len());
        until("it runs", || history.running().len() == runs).await;
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < SECOND, "{longest:?}");
    history.assert_sound();
}

/// The whole cluster is stopped: the singleton ends where it is, and no node takes it.
#[tokio::test(start_paused = true)]
async fn cluster_singleton_manager_preparing_for_shutdown_spec() {
    let (store, history) = (Memory::new(), History::default());
    let [one, two, three] = cluster_of(&store, &history, ["one", "two", "three"]).await;
    two.cluster.stop_all().await.unwrap();
    let reports = tokio::join!(one.completed(), two.completed(), three.completed());
    assert!(reports.0.is_clean() && reports.1.is_clean() && reports.2.is_clean());
    assert_eq!(history.owners(), ["one"]);
    assert!(history.running().is_empty());
}
